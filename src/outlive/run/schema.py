"""The JSON Schema of the run file, for editors."""

from __future__ import annotations

from typing import Any


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the run file under our own key names. Checks between keys are not part of it."""
    from outlive.run.settings.whole import Run

    schema = Run.model_json_schema()
    for name, key in schema["properties"].items():
        # pydantic leaves out a section's description when its model has the same one; editors show the key's.
        key["description"] = " ".join((Run.model_fields[name].description or "").split())
        if "$ref" in key and name not in schema["required"]:
            # A section whose keys are all commented out is null to an editor; the loader takes it for its defaults.
            schema["properties"][name] = {"anyOf": [{"$ref": key.pop("$ref")}, {"type": "null"}], **key}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Outlive run file",
    }

"""The models of the run file, one per section. Import them from `outlive.run.config`."""

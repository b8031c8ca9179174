"""How much a chat template may do in one render. A template comes from a stranger, and rendering is to end.

Work and text are counted, not timed, so a template is stopped at the same place on every machine. Each limit is far
above what real templates need (2,000 messages with tool calls and 10 MB of text stay below; a test holds that), and
low enough that the worst template stops within seconds. Two of them grow with the conversation, and only when it
matters: the size of the conversation is not computed before the fixed part is used up.
"""

from __future__ import annotations

# Characters of a template's source. The largest of 70 real ones has 20,000; parsing takes about 10 µs a character.
MAX_SOURCE = 250_000

# Steps: one for each expression that is evaluated, each value that is looked at, each 256 characters that are read.
# Most steps take 0.1 to 0.5 µs.
MAX_STEPS = 4_000_000
# Further steps for each value (text, number, list …) of the conversation: templates that look through all messages
# for each of them need hundreds.
STEPS_PER_VALUE = 500

# Characters of all texts that are made, in between and at the end. A character takes 1 to 4 bytes of memory.
MAX_CHARACTERS = 64_000_000
# Further ones for each character of the conversation: trimming, splitting and joining each make the text once more.
# Never more than MOST_CHARACTERS together.
CHARACTERS_PER_CHARACTER = 64
MOST_CHARACTERS = 1_000_000_000
# What a list entry counts for, in characters: with a new value in it (a piece of a split text takes some 60 bytes),
# and where it only points to a value that is there already.
NEW_ENTRY, COPIED_ENTRY = 16, 2

# Macros, blocks and recursive loops inside each other; Python itself stops at some 200.
MAX_DEPTH = 80
# Lists and objects inside each other, where they are compared, hashed or printed.
MAX_NESTING = 400
# Bits of a whole number: more digits than Python prints, or reads from JSON.
MAX_BITS = 16_384
# Entries of a range, as in Jinja's own sandbox; what a format or an attribute path may be long.
MAX_RANGE = 100_000
MAX_FORMAT = 1_000
# Characters that a filter for web pages takes (urlize, striptags …): some of them take quadratic time.
MAX_WEB_TEXT = 100_000

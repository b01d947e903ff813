"""What text in a config must look like: a pattern to check it, and words for people who broke it."""

LANGUAGE = r"^[a-z]{2,3}$"
SPLIT = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
TAG = r"^\S*$"

MEANINGS = {
    LANGUAGE: "a language code such as de",
    SPLIT: "a name of letters, digits, _, - and ., such as test_2016",
    TAG: "one word, without spaces",
}

"""The grammar that the sample corpus is made from."""

"""The README.md of an exported model: what it is, and a script that translates with it.

Knows names and numbers of a run, and what its tokenizers ask for; writes no file.
"""

from mt_cli import __version__
from mt_cli.artefacts.run import Run
from mt_cli.stages.export.proof import Proof
from mt_cli.translation.exported_searcher import SENTENCES_AT_ONCE

README = """\
# {languages}, for CTranslate2

Checkpoint {checkpoint} of {run}, exported by mt-cli {version}. Weights: {weights}.
With mt-cli, `translate`, `evaluate` and `compare` take this folder in place of a run:

```console
$ mt-cli translate . -i FILE
```

Without it, this script, run in this folder, reads lines and writes their translations. It needs {packages}:

```python
{script}```

`beam_size=5` searches with a beam. CTranslate2's `length_penalty` is another than mt-cli's: it divides by the
length to that power. A line of more than {longest} tokens is cut, where mt-cli splits it{unknown}.
What the run's config says of `max_len_factor`, `max_len_extra`, `min_len` and `no_repeat_ngram` is ignored.
"""

OPTIONS = """\
    beam_size=1,
    disable_unk=True,
    max_batch_size={batch_size},
    min_decoding_length=0,
    max_input_length={max_len},
    max_decoding_length={longest},
"""

SUBWORD_SCRIPT = """\
import sys
import unicodedata

import ctranslate2
import sentencepiece

translator = ctranslate2.Translator(".")
src = sentencepiece.SentencePieceProcessor(model_file="tokenizer/{src_file}")
tgt = sentencepiece.SentencePieceProcessor(model_file="tokenizer/{tgt_file}")

# mt-cli drops invisible characters too: see mt_cli/text/normalize.py.
lines = [" ".join(unicodedata.normalize("NFC", {line}).split()) for line in sys.stdin]
results = translator.translate_batch(
    src.encode(lines, out_type=str),
{options})
for result in results:
    print(" ".join(tgt.decode(result.hypotheses[0]).split()))
"""

WORD_SCRIPT = """\
import sys

import ctranslate2

from mt_cli.text.normalize import normalize
from mt_cli.text.words import join_words, split_words

translator = ctranslate2.Translator(".")

lines = [normalize(line, lowercase={lowercase}) for line in sys.stdin]
results = translator.translate_batch(
    split_words(lines, "{src_lang}"),
{options})
for result in results:
    print(join_words(result.hypotheses[0]))
"""

UNKNOWN = ", and a word that the\nvocabulary lacks is never put in from the source"

PROOF = """
Greedy, on the CPU, when it was exported:

```
{proof}
```
"""


def readme_of(run: Run, checkpoint: str, quantization: str, proof: Proof | None) -> str:
    """The text for an export of `checkpoint`, with its proof if there is one."""
    tokenizers, longest = run.tokenizers, run.config.model.longest_sentence
    options, is_words = tokenizers.options, tokenizers.kind == "spacy"
    script = (WORD_SCRIPT if is_words else SUBWORD_SCRIPT).format(
        src_lang=options.src_lang,
        src_file="joint.model" if tokenizers.joint else "src.model",
        tgt_file="joint.model" if tokenizers.joint else "tgt.model",
        line="line.lower()" if options.lowercase else "line",
        lowercase=options.lowercase,
        options=OPTIONS.format(
            batch_size=run.config.decoding.batch_size or SENTENCES_AT_ONCE["cpu"],
            max_len=longest + 1,
            longest=longest,
        ),
    )
    text = README.format(
        languages=f"{options.src_lang} to {options.tgt_lang}",
        checkpoint=checkpoint,
        run=run.folder.resolve().name,
        version=__version__,
        weights="float32" if quantization == "none" else quantization,
        packages="mt_cli[export]" if is_words else "ctranslate2 and sentencepiece",
        longest=longest,
        unknown=UNKNOWN if is_words else "",
        script=script,
    )
    return text if proof is None else text + PROOF.format(proof=proof)

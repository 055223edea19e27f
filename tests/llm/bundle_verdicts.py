"""Judge the bundles of all architectures: `python tests/llm/bundle_verdicts.py [--all | names]`.

Without arguments, the rows without a verdict are judged. Each verdict is stored when it is known,
with the commit and the versions that it was found with. `--to FOLDER` writes one file per verdict
instead, so that several processes can share the work, and `--collect FOLDER` stores these.
`--page` writes the stored verdicts to docs/language-models.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

KEPT = Path(__file__).parent / "bundle_verdicts.json"
PAGE = Path(__file__).parents[2] / "docs" / "language-models.md"
START = "<!-- architectures: python tests/llm/bundle_verdicts.py --page -->"
END = "<!-- end -->"


def load():
    """Return the stored verdicts by architecture."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def judge(name):
    """Export and check one architecture; return its verdict."""
    import architectures
    from tiny_tokenizer import tiny_tokenizer

    from coreai_torch import llm
    from coreai_torch.errors import ConversionError

    start = time.perf_counter()
    verdict = {"verdict": "conforms", "reason": "", "class": ""}
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = architectures.build(name)
            verdict["class"] = type(model).__name__
            bundle = Path(folder) / name
            llm.export(
                model, bundle, tokenizer=tiny_tokenizer(), max_context_length=2048, verify=False
            )
            report = llm.check(bundle, model)
            failed = [step for step in report.steps if step.status != "ok"]
            if failed:
                verdict |= {"verdict": "fails", "reason": f"{failed[0].name}: {failed[0].detail}"}
        except ConversionError as error:
            verdict |= {"verdict": "rejected", "reason": str(error).partition("\n")[0]}
        except Exception as error:
            verdict |= {"verdict": "fails", "reason": f"{type(error).__name__}: {error}"[:300]}
    return {**verdict, "seconds": round(time.perf_counter() - start, 1)}


def table(verdicts):
    """Return the lines of the table in the docs."""
    lines = ["| architecture | class | verdict |", "|---|---|---|"]
    for name, row in verdicts.items():
        reason = f": {row['reason']}" if row["reason"] else ""
        lines.append(f"| `{name}` | `{row['class']}` | {row['verdict']}{reason} |")
    count = sum(row["verdict"] == "conforms" for row in verdicts.values())
    summary = f"{count} of {len(verdicts)} conform; the others are rejected."
    return [summary, "", *_measured(verdicts), "", *lines]


def _measured(verdicts):
    """Return a sentence for each set of versions, the most frequent first."""
    import provenance

    sets = Counter(tuple(row["measured"].items()) for row in verdicts.values())
    return [
        f"- {count} row{'s' * (count > 1)}: {provenance.describe(dict(one))}"
        for one, count in sets.most_common()
    ]


def page_with_table(text, verdicts):
    """Return the page with the table between its markers."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    return "".join([before, start, "\n".join(["", "", *table(verdicts), "", ""]), end, after])


def judged(name, commit=None):
    """Return the verdict on one architecture with its commit and versions."""
    import provenance

    measured = provenance.current("transformers")
    return {**judge(name), "measured": {**measured, "commit": commit or measured["commit"]}}


def store(new):
    """Store verdicts beside those of other rows."""
    import architectures

    verdicts = {**load(), **new}
    ordered = {one: verdicts[one] for one in architectures.names() if one in verdicts}
    KEPT.write_text(json.dumps(ordered, indent=1) + "\n")


def main():
    import architectures

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--to", type=Path, help="a folder for one file per verdict")
    parser.add_argument("--collect", type=Path, help="a folder with such files")
    parser.add_argument("--commit", help="by default that of this checkout")
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    if given.collect:
        store({p.stem: json.loads(p.read_text()) for p in sorted(given.collect.glob("*.json"))})
    elif given.page:
        PAGE.write_text(page_with_table(PAGE.read_text(), load()))
    else:
        rows, known = architectures.names(), load()
        for name in rows if given.all else given.names or [n for n in rows if n not in known]:
            verdict = judged(name, given.commit)
            print(name, verdict["verdict"], verdict["reason"], flush=True)  # noqa: T201
            if given.to:
                (given.to / f"{name}.json").write_text(json.dumps(verdict))
            else:
                store({name: verdict})


if __name__ == "__main__":
    main()

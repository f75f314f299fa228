#!/usr/bin/env bash
# Runs the commands of docs/user/first-hour.md in order, in one shell, and compares their output with the page: lines in any
# order, with any numbers where the page has some. A section that cannot run here is skipped. Usage: first_hour.sh PREFIX
set -u
cd "$(dirname "$0")" || exit 1
. ./check.sh
prefix=$(realpath "$1")
page=$PWD/../docs/user/first-hour.md
work=$(mktemp -d)
trap 'CANELE_LAB=hour "$prefix/bin/canele" lab down >/dev/null 2>&1; rm -rf "$work"' EXIT
# The page installs below HOME.
mkdir "$work/home"
ln -s "$prefix" "$work/home/canele"
export HOME=$work/home
cd "$work" || exit 1
python3 - "$page" "$work" <<'END' || exit 1
"""Writes each command of the page to a file N.command, its output on the page to N.expected and its section to N.section."""
import re, sys

page, work = sys.argv[1:]
number, section, command = 0, "", None
inside, here = False, None

def write(kind, text):
    open(f"{work}/{number:03}.{kind}", "w").write(text)

for line in open(page, encoding="utf-8"):
    if line.startswith("## "):
        section = line[3:].strip()
    elif line.startswith("```"):
        inside = line.strip() == "```console"
    elif inside and line.startswith("$ "):
        number += 1
        command, expected = line[2:], ""
        here = re.search(r"<<'(\w+)'", line)
        write("command", command)
        write("expected", expected)
        write("section", section)
    elif inside and here:
        command += line
        write("command", command)
        here = None if line.strip() == here[1] else here
    elif inside:
        expected += line
        write("expected", expected)
END
why() { # section: the reason why it cannot run here, if there is one
    case $1 in
        Python) python3 -c 'import venv, ensurepip' 2>/dev/null || echo "python3 makes no virtual environments here" ;;
        'Two sites') [ "$(id -u)" = 0 ] || echo "the lab needs root here" ;;
    esac
}
alike() { sed 's/[0-9][0-9]*/N/g' | sort; }
skipped=
for command in "$work"/*.command; do
    number=${command%.command}
    section=$(cat "$number.section")
    [ "$section" != "$skipped" ] || continue
    reason=$(why "$section")
    if [ -n "$reason" ]; then
        skip "$section" "$reason"
        skipped=$section
        continue
    fi
    # Commands keep variables, folder and jobs of this shell.
    . "$command" >"$work/said" 2>"$work/err"
    code=$?
    case $(head -1 "$command") in
        kill*) code=0 ;;
        *'&') sleep 0.1 ;;
    esac
    check "$section: $(head -1 "$command" | cut -c1-60)" "0 $(alike <"$number.expected")" "$code $(alike <"$work/said")"
    [ "$code" = 0 ] || cat "$work/err"
done
finish_checks

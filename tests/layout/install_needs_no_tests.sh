#!/bin/sh
# What `make install` builds has the command and no file of a test:   install_needs_no_tests.sh NINJA BUILD-FOLDER
set -eu
inputs=$("$1" -C "$2" -t inputs alibi_to_install)
echo "$inputs" | grep -q 'alibi_cli.dir/' || { echo "the command is not built"; exit 1; }
if echo "$inputs" | grep -E '(^|/)(tests|fuzz)/'; then
  echo "these files of tests are built too"
  exit 1
fi

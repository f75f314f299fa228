# Few words; each calls a script that can be read.
.PHONY: test
test:
	@scripts/test.sh

# Few words; each calls a script that can be read.
PREFIX ?= /usr/local
ARCH ?= $(shell uname -m)
.PHONY: help demo test conformance nightly peers bench install uninstall wheel deb
help:
	@echo "make demo         build Canele, and run it on an emulated grid of two sites"
	@echo "make install      build Canele, and install it in PREFIX ($(PREFIX)), below DESTDIR if that is set"
	@echo "make uninstall    remove what make install has installed in PREFIX"
	@echo "make wheel        build Canele, and pack it for pip, into build/packages (ARCH: x86_64 or aarch64)"
	@echo "make deb          build Canele, and pack it for Debian, into build/packages"
	@echo "make test         run the test suite"
	@echo "make bench        measure Canele beside its peers and raw TCP (BENCH: what, and options)"
	@echo "make peers        install other MPIs to measure beside"
	@echo "make conformance  run the test suites of others"
	@echo "make nightly      run the tests that take hours (STEPS: which)"
demo:
	@scripts/demo.sh
test:
	@scripts/test.sh
conformance:
	@scripts/conformance.sh
nightly:
	@scripts/nightly.sh $(STEPS)
peers:
	@scripts/peers.sh
bench:
	@scripts/bench.sh $(BENCH)
install:
	@scripts/bootstrap.sh
	@scripts/build.sh
	@DESTDIR="$(DESTDIR)" scripts/install.sh "$(PREFIX)"
wheel:
	@scripts/bootstrap.sh
	@scripts/build.sh $(ARCH)
	@scripts/wheel.sh build/packages $(ARCH)
deb:
	@scripts/bootstrap.sh
	@scripts/build.sh
	@scripts/deb.sh build/packages
uninstall:
	@DESTDIR="$(DESTDIR)" scripts/install.sh --uninstall "$(PREFIX)"

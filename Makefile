# Few words; each calls a script that can be read.
PREFIX ?= /usr/local
.PHONY: demo test conformance nightly peers bench install
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
	@PATH="$$PATH:$$HOME/.cargo/bin" cargo build --release --locked
	@scripts/install.sh $(PREFIX)

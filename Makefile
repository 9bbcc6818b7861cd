# The commands that are used by hand. What a change has to pass is in .ci/run.
.PHONY: test lint bench quickstart ci

test: ## the test command of the README
	go test -race ./...

lint:
	test -z "$$(gofmt -l .)"
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench: ## functions by go test, workloads by the programs in test/bench
	go test -run '^$$' -bench . -benchmem ./...
	set -e; for p in strategy coldstart crash leave handoff idle memory churn fanout size reading elastic; do go run ./test/bench/$$p; done

quickstart:
	go run ./examples/quickstart

ci:
	bash .ci/run

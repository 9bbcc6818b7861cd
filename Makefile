# The commands that are used by hand. What a change has to pass is in .ci/run.
.PHONY: test race lint bench quickstart ci

test: ## the test command of the README
	go test ./...

race: ## as CI runs them besides; needs a C compiler
	go test -race ./...

lint:
	test -z "$$(gofmt -l .)"
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench: ## functions by go test, workloads by the programs in test/bench; one that fails does not keep the others from running
	go test -run '^$$' -bench . -benchmem ./...
	failed=; for p in strategy coldstart crash leave handoff idle memory churn fanout size reading elastic; do \
		go run ./test/bench/$$p || failed="$$failed $$p"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

quickstart:
	go run ./examples/quickstart

ci:
	bash .ci/run

package types_test

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

func TestValidateWorkerID(t *testing.T) {
	for _, id := range []string{"worker-0", "A_b-9", strings.Repeat("w", types.MaxWorkerIDLength)} {
		require.NoError(t, types.ValidateWorkerID(id))
	}
	for id, says := range map[string]string{
		"":        "1 to 64 bytes",
		"host.1":  `write "host-1" for "host.1"`,
		"a/b":     "only letters, digits",
		"a b":     "only letters, digits",
		"*":       "only letters, digits",
		"zürich":  "only letters, digits",
		"_commit": `write "w_commit"`,
		strings.Repeat("w", types.MaxWorkerIDLength+1): "1 to 64 bytes",
	} {
		err := types.ValidateWorkerID(id)
		require.ErrorIs(t, err, types.ErrInvalidWorkerID, id)
		require.ErrorContains(t, err, says)
	}
}

func TestStatesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for s := types.StateInit; s <= types.StateStopped; s++ {
		require.NotEqual(t, "unknown", s.String())
		require.False(t, seen[s.String()])
		seen[s.String()] = true
	}
	require.Equal(t, "stable", types.StateStable.String())
	require.Equal(t, "unknown", types.State(-1).String())
	require.Equal(t, "unknown", (types.StateStopped + 1).String())
	for c, name := range map[types.CalculatorState]string{
		types.CalculatorIdle: "idle", types.CalculatorScaling: "scaling", types.CalculatorRebalancing: "rebalancing",
		types.CalculatorEmergency: "emergency", -1: "unknown", 4: "unknown",
	} {
		require.Equal(t, name, c.String())
	}
	for o, name := range map[types.OwnershipState]string{
		0: "assigned", types.OwnershipWaiting: "waiting", types.OwnershipRunning: "running", types.OwnershipDraining: "draining",
		types.OwnershipLost: "lost", types.OwnershipReleased: "released", 6: "unknown",
	} {
		require.Equal(t, name, o.String())
	}
}

// names checks that every value of an enumeration is its name in JSON, also as a key, and that nothing else is read.
func names[T comparable, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, values ...T) {
	t.Helper()
	for _, v := range values {
		data, err := json.Marshal(map[T]T{v: v})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf(`{"%v":"%v"}`, v, v), string(data))
		back := map[T]T{}
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, map[T]T{v: v}, back)
	}
	for _, bad := range []string{`"unknown"`, `""`, `"Stable"`, `3`} {
		v := values[1]
		require.Error(t, json.Unmarshal([]byte(bad), P(&v)), bad)
		require.Equal(t, values[1], v, "left alone")
	}
	var v T
	require.ErrorIs(t, P(&v).UnmarshalText([]byte("tired")), types.ErrMalformed)
	require.ErrorContains(t, P(&v).UnmarshalText([]byte("tired")), fmt.Sprintf("use one of %v, %v", values[0], values[1]))
}

func TestStatesAreTextInJSON(t *testing.T) {
	var states []types.State
	for s := types.StateInit; s <= types.StateStopped; s++ {
		states = append(states, s)
	}
	names(t, states...)
	names(t, types.CalculatorIdle, types.CalculatorScaling, types.CalculatorRebalancing, types.CalculatorEmergency)
	names(t, types.OwnershipAssigned, types.OwnershipWaiting, types.OwnershipRunning, types.OwnershipDraining, types.OwnershipLost,
		types.OwnershipReleased)
	data, err := json.Marshal(types.State(-1))
	require.NoError(t, err, "a health endpoint answers whatever there is")
	require.Equal(t, `"unknown"`, string(data))
}

// declaredErrors returns the names of the package's sentinels and their texts, from the source.
func declaredErrors(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	require.NoError(t, err)
	found := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			call, isCall := spec.Values[0].(*ast.CallExpr)
			require.True(t, isCall)
			found[spec.Names[0].Name] = call.Args[0].(*ast.BasicLit).Value
		}
		return true
	})
	return found
}

func TestErrorsAreDistinct(t *testing.T) {
	texts := map[string]string{}
	for name, text := range declaredErrors(t) {
		require.True(t, strings.HasPrefix(text, `"parti: `), "%s: %s", name, text)
		require.True(t, strings.HasPrefix(name, "Err"))
		require.NotContains(t, texts, text, name)
		texts[text] = name
	}
	require.Greater(t, len(texts), 20)
	require.NotErrorIs(t, types.ErrRevoked, types.ErrLeaseExpired)
	require.NotErrorIs(t, types.ErrMalformed, types.ErrUnsupportedSchema)
}

func TestCapabilities(t *testing.T) {
	c := types.CapAckV1 | types.CapLabelsV1
	require.True(t, c.Has(types.CapAckV1))
	require.True(t, c.Has(types.CapAckV1|types.CapLabelsV1))
	require.False(t, c.Has(types.CapAckV1|types.CapHandoffV1))
	require.True(t, c.Has(0))
	require.Equal(t, types.Capabilities(7), types.CapAckV1|types.CapHandoffV1|types.CapLabelsV1, "bits are part of the wire format")
}

func TestHolders(t *testing.T) {
	r := types.AssignmentPayloadRef{WorkerID: "w", Incarnation: "i"}
	require.Equal(t, types.Holder{Worker: "w", Incarnation: "i"}, r.Holder())
	require.Equal(t, "w/i", r.Holder().String())
}

func TestStrategyFunc(t *testing.T) {
	failure := errors.New("no")
	var s types.AssignmentStrategy = types.StrategyFunc(func(_ context.Context, in types.AssignmentInput) ([]int, error) {
		return make([]int, len(in.Partitions)), failure
	})
	owners, err := s.Assign(context.Background(), types.AssignmentInput{Partitions: make([]types.Partition, 2)})
	require.Equal(t, []int{0, 0}, owners)
	require.ErrorIs(t, err, failure)
}

package fence_test

import (
	"testing"

	"github.com/partigo/parti/fence"
	"github.com/partigo/parti/types"
	"github.com/stretchr/testify/require"
)

// What the statements do is tested against a database in examples/fencing-sql, a module of its own because of the driver.
func TestSQLStatements(t *testing.T) {
	create, advance, err := fence.SQL{Table: "app.fence"}.Statements()
	require.NoError(t, err)
	require.Equal(t, "CREATE TABLE IF NOT EXISTS app.fence (partition_id TEXT PRIMARY KEY, epoch BIGINT NOT NULL)", create)
	require.Equal(t, "INSERT INTO app.fence AS f (partition_id, epoch) VALUES ($1, $2) "+
		"ON CONFLICT (partition_id) DO UPDATE SET epoch = excluded.epoch WHERE excluded.epoch >= f.epoch", advance)
}

func TestSQLRefusesTableNames(t *testing.T) {
	for _, name := range []string{"a b", "a;DROP TABLE b", "1a", "a.b.c", `"a"`, "a.", ".a"} {
		_, _, err := fence.SQL{Table: name}.Statements()
		require.ErrorIs(t, err, types.ErrInvalidConfig, name)
	}
}

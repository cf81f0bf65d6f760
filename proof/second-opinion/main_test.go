package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func TestGoodAndBadHistories(t *testing.T) {
	kinds["pair"] = pair{}
	defer delete(kinds, "pair")
	for _, history := range []struct {
		says  string
		good  bool
		lines string
	}{
		{"one after the other", true, "a grant 0 1 0 10 1\na release 0 0 11 12 1\na grant 1 2 13 20 1\n"},
		{"calls that overlap", true, "a grant 0 1 0 10 1\na release 0 0 11 50 1\na grant 1 2 5 20 1\n"},
		{"two holders", false, "a grant 0 1 0 10 1\na grant 1 2 0 10 1\na release 0 0 11 12 1\na release 1 0 11 12 1\n"},
		{"two holders, one of which ended", true, "a grant 0 1 0 10 1\na gone 0 0 5 - 0\na grant 1 2 20 30 1\n"},
		{"an end before its time", false, "a grant 0 1 0 10 1\na gone 0 0 50 - 0\na grant 1 2 20 30 1\n"},
		{"a smaller token", false, "a grant 0 2 0 10 1\na release 0 0 11 12 1\na grant 1 1 13 20 1\n"},
		{"denied though nobody held it", false, "a grant 0 1 0 10 1\na release 0 0 11 12 1\na deny 0 0 13 14 1\n"},
		{"denied while it was held", true, "a grant 0 1 0 10 1\na deny 0 0 11 12 1\na release 0 0 13 14 1\n"},
		{"a confirmed release of what is gone", false,
			"a grant 0 1 0 10 1\na gone 0 0 5 - 0\na grant 1 2 20 30 1\na release 0 0 40 41 1\n"},
		{"a release that may have come to nothing", true,
			"a grant 0 1 0 10 1\na gone 0 0 5 - 0\na grant 1 2 20 30 1\na release 0 0 40 41 0\n"},
		{"levels", true, "a grant 0 1 0 10 1\na nest 0 2 11 12 1\na leave 0 1 13 14 1\na release 0 0 15 16 1\n"},
		{"a kind that is named", false, "a grant 0 1 0 10 1 reentrant\na grant 1 2 20 30 1 reentrant\n"},
		{"two holders of a pair", true, "a grant 0 1 0 10 1 pair\na grant 1 2 20 30 1 pair\na deny 0 0 40 41 1 pair\n"},
		{"three holders of a pair", false,
			"a grant 0 1 0 10 1 pair\na grant 1 2 20 30 1 pair\na grant 2 3 40 50 1 pair\n"},
		{"a third holder after the first", true,
			"a grant 0 1 0 10 1 pair\na grant 1 2 20 30 1 pair\na release 0 0 31 32 1 pair\na grant 2 3 40 50 1 pair\n"},
		{"denied though a place was free", false, "a grant 0 1 0 10 1 pair\na deny 0 0 13 14 1 pair\n"},
		{"a level too many", false, "a grant 0 1 0 10 1\na nest 0 3 11 12 1\n"},
	} {
		path := filepath.Join(t.TempDir(), "operations")
		if err := os.WriteFile(path, []byte(history.lines), 0o600); err != nil {
			t.Fatal(err)
		}
		names, err := read(path)
		if err != nil || len(names) != 1 {
			t.Fatal(err, names)
		}
		for name, done := range names {
			result := porcupine.CheckOperationsTimeout(modelOf(kinds[name.kind]), done, time.Minute)
			if (result == porcupine.Ok) != history.good {
				t.Errorf("%s: %s", history.says, result)
			}
		}
	}
}

func TestAnUnknownKindIsAnError(t *testing.T) {
	_, _, err := parse("a grant 0 1 0 10 1 latch")
	if err == nil || !strings.Contains(err.Error(), `no model for a lock of the kind "latch"`) {
		t.Error(err)
	}
}

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

		{"three permits", true, "a grant 0 1 0 10 1 semaphore 2\na grant 1 2 20 30 1 semaphore\n" +
			"a deny 0 0 31 32 1 semaphore\na release 0 0 33 34 1 semaphore\na grant 2 3 35 36 1 semaphore 2\n"},
		{"four permits", false, "a grant 0 1 0 10 1 semaphore 2\na grant 1 2 20 30 1 semaphore 2\n"},
		{"a refusal though there is room", false, "a grant 0 1 0 10 1 semaphore 2\na deny 0 0 31 32 1 semaphore\n"},
		{"permits that are released twice", false,
			"a grant 0 1 0 10 1 semaphore\na release 0 0 11 12 1 semaphore\na release 0 0 13 14 1 semaphore\n"},
		{"permits whose time is over", true, "a grant 0 1 0 10 1 semaphore 3\na gone 0 0 15 - 0 semaphore\n" +
			"a grant 1 2 20 30 1 semaphore 3\n"},
		{"a smaller token of permits", false, "a grant 0 2 0 10 1 semaphore\na grant 1 1 20 30 1 semaphore\n"},

		{"two readers", true, "a grant 0 1 0 10 1 read-write 0+1\na grant 1 2 20 30 1 read-write 0+1\n"},
		{"a reader and a writer", false, "a grant 0 1 0 10 1 read-write 0+1\na grant 1 2 20 30 1 read-write 1\n"},
		{"a writer and a reader", false, "a grant 0 1 0 10 1 read-write 1\na grant 1 2 20 30 1 read-write 0+1\n"},
		{"a reader that is refused beside a reader", false,
			"a grant 0 1 0 10 1 read-write 0+1\na deny 0 0 20 30 1 read-write 0+1\n"},
		{"a writer that is refused beside a reader", true,
			"a grant 0 1 0 10 1 read-write 0+1\na deny 0 0 20 30 1 read-write 1\n"},
		{"a reader after a downgrade", true, "a grant 0 1 0 10 1 read-write 1\na downgrade 0 0 11 12 1 read-write 0+1\n" +
			"a grant 1 2 20 30 1 read-write 0+1\n"},
		{"a writer after a downgrade", false, "a grant 0 1 0 10 1 read-write 1\na downgrade 0 0 11 12 1 read-write 0+1\n" +
			"a grant 1 2 20 30 1 read-write 1\n"},
		{"a downgrade of a read", false,
			"a grant 0 1 0 10 1 read-write 0+1\na downgrade 0 0 11 12 1 read-write 0+1\n"},
		{"an upgrade", true, "a grant 0 1 0 10 1 read-write 0+1\na grant 1 2 20 30 1 read-write 1 0\n" +
			"a release 1 0 31 32 1 read-write 0\na release 0 0 33 34 1 read-write 0\n"},
		{"an upgrade beside another reader", false, "a grant 0 1 0 10 1 read-write 0+1\n" +
			"a grant 2 2 11 12 1 read-write 0+1\na grant 1 3 20 30 1 read-write 1 0\n"},
		{"an upgrade without its read", false, "a grant 1 2 20 30 1 read-write 1 0\n"},
		{"an upgrade whose read may be on another server", true, "a grant 1 2 20 30 0 read-write 1 0\n"},
		{"the same beside another reader", false,
			"a grant 0 1 0 10 1 read-write 0+1\na grant 1 2 20 30 0 read-write 1 7\n"},
		{"an upgrade that is refused without reason", false,
			"a grant 0 1 0 10 1 read-write 0+1\na deny 0 0 20 30 1 read-write 1 0\n"},
		{"reads and writes of one owner", true, "a grant 0 1 0 10 1 read-write 1\na nest 0 0 11 12 1 read-write 1+1\n" +
			"a leave 0 0 13 14 1 read-write 1\na release 0 0 15 16 1 read-write 0\n"},
		{"a reader that writes once more", false,
			"a grant 0 1 0 10 1 read-write 0+1\na nest 0 0 11 12 1 read-write 1+1\n"},
		{"a release of two levels at once", false, "a grant 0 1 0 10 1 read-write 1\n" +
			"a nest 0 0 11 12 1 read-write 2\na release 0 0 15 16 1 read-write 0\n"},
		{"a writer after a read whose time is over", true, "a grant 0 1 0 10 1 read-write 0+1\n" +
			"a gone 0 0 15 - 0 read-write 0\na grant 1 2 20 30 1 read-write 1\n"},
		{"a smaller token of a writer", false, "a grant 0 2 0 10 1 read-write 0+1\na release 0 0 11 12 1 read-write 0\n" +
			"a grant 1 1 20 30 1 read-write 1\n"},

		{"a latch", true, "a count 0 0 0 5 1 latch 0\na set 0 0 10 15 1 latch 2 1\na set 1 0 20 25 1 latch 3 0\n" +
			"a down 0 0 30 35 1 latch 0 1\na down 0 0 40 45 1 latch 0 0\na count 0 0 50 55 1 latch 0\n" +
			"a down 0 0 60 65 1 latch 0 0\na delete 0 0 70 75 1 latch 0 0\n"},
		{"a wait that ends too early", false, "a set 0 0 0 5 1 latch 2 1\na down 0 0 10 15 1 latch 0 1\n" +
			"a count 0 0 20 25 1 latch 0\n"},
		{"a call that counts twice", false, "a set 0 0 0 5 1 latch 3 1\na down 0 0 10 15 1 latch 0 1\n"},
		{"a latch that is set twice", false, "a set 0 0 0 5 1 latch 3 1\na set 1 0 10 15 1 latch 3 1\n"},
		{"an unanswered call that has counted", true,
			"a set 0 0 0 5 1 latch 3 1\na down 0 0 6 - 1 latch 0 -\na down 0 0 10 15 1 latch 0 1\n"},
		{"an unanswered call that counts before it begins", false,
			"a set 0 0 0 5 1 latch 3 1\na down 0 0 10 15 1 latch 0 1\na down 0 0 16 - 1 latch 0 -\n"},
		{"a latch whose time is over", true,
			"a set 0 0 0 5 1 latch 3 1\na over 0 0 20 - 0 latch 0\na count 0 0 30 35 1 latch 0\n"},
		{"a latch whose time is not over yet", false,
			"a set 0 0 0 5 1 latch 3 1\na over 0 0 40 - 0 latch 0\na count 0 0 30 35 1 latch 0\n"},
		{"the time of another latch", false, "a set 0 0 0 5 1 latch 3 1\na over 7 0 20 - 0 latch 0\na count 0 0 30 35 1 latch 0\n"},
		{"a latch that the server has forgotten", true,
			"a set 0 0 0 5 1 latch 3 1\na forgotten 0 0 20 - 0 latch 0\na count 0 0 30 35 1 latch 0\n"},

		{"two that compute at once", false, "a grant 0 1 0 10 1 flight\na grant 1 2 20 30 1 flight\n"},
		{"one that computes after the other", true,
			"a grant 0 1 0 10 1 flight\na release 0 0 11 - 0 flight 0\na grant 1 2 20 30 1 flight\n"},
	} {
		path := filepath.Join(t.TempDir(), "operations")
		if err := os.WriteFile(path, []byte(full(history.lines)), 0o600); err != nil {
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

// full adds what is left out at the ends of lines: the kind, the share, the hold beside it.
func full(lines string) string {
	var text strings.Builder
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		words := strings.Fields(line)
		share := "1"
		if words[1] == "nest" || words[1] == "leave" {
			share = words[3]
		}
		for _, word := range []string{"reentrant", share, "-"}[len(words)-7:] {
			line += " " + word
		}
		text.WriteString(line + "\n")
	}
	return text.String()
}

func TestAnUnknownKindIsAnError(t *testing.T) {
	_, _, err := parse("a grant 0 1 0 10 1 moon 1 -")
	if err == nil || !strings.Contains(err.Error(), `no model for a lock of the kind "moon"`) {
		t.Error(err)
	}
}

// Reads what was done to locks in histories of real processes, and asks Porcupine whether there is an order, within
// the times of the calls, in which a lock of the same kind would have given the same answers. The histories have been
// checked by another program already; this one shares no code with it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// patience is how long the search for an order of one name may take.
const patience = 60 * time.Second

func main() {
	names, operations, undecided, wrong := 0, 0, 0, 0
	for _, path := range os.Args[1:] {
		history, err := read(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		for name, done := range history {
			names++
			operations += len(done)
			switch porcupine.CheckOperationsTimeout(modelOf(kinds[name.kind]), done, patience) {
			case porcupine.Illegal:
				wrong++
				fmt.Printf("WRONG %s: no %s lock answers like this: %s\n", path, name.kind, name.text)
			case porcupine.Unknown:
				undecided++
				fmt.Printf("undecided after %v: %s of %s\n", patience, name.text, path)
			}
		}
	}
	fmt.Printf("{\"part\":\"second-opinion\",\"histories\":%d,\"names\":%d,\"operations\":%d,\"undecided\":%d,\"wrong\":%d}\n",
		len(os.Args)-1, names, operations, undecided, wrong)
	if wrong > 0 || names == 0 {
		os.Exit(1)
	}
}

// lockName is the name of a lock. Two kinds of one text are two names.
type lockName struct {
	text string
	// kind is one of kinds.
	kind string
}

// read gives the operations of each name in a file.
func read(path string) (map[lockName][]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all := make(map[lockName][]operation)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		name, op, err := parse(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", path, lines.Text(), err)
		}
		all[name] = append(all[name], op)
	}
	history := make(map[lockName][]porcupine.Operation)
	for name, done := range all {
		for _, op := range possible(done) {
			history[name] = append(history[name], porcupine.Operation{Input: op, Call: op.called, Return: op.ended})
		}
	}
	return history, lines.Err()
}

// possible leaves out the ends of holds that were certainly released: those did not end by themselves. With fewer
// operations that need not happen the search is faster.
func possible(done []operation) []operation {
	released := make(map[int]bool)
	for _, op := range done {
		if op.step == "release" && op.strict {
			released[op.hold] = true
		}
	}
	var rest []operation
	for _, op := range done {
		if op.step != "gone" || !released[op.hold] {
			rest = append(rest, op)
		}
	}
	return rest
}

// parse reads a line: name, step, hold, token, called, ended or "-", strict, kind, share, and the hold beside it or "-".
func parse(line string) (lockName, operation, error) {
	words := strings.Fields(line)
	if len(words) != 10 {
		return lockName{}, operation{}, fmt.Errorf("%d words instead of 10", len(words))
	}
	name := lockName{words[0], words[7]}
	if _, known := kinds[name.kind]; !known {
		return name, operation{}, fmt.Errorf("there is no model for a lock of the kind %q", name.kind)
	}
	var err error
	number := func(word string) int64 {
		value, failed := strconv.ParseInt(word, 10, 64)
		if failed != nil {
			err = failed
		}
		return value
	}
	numberOr := func(word string, none int64) int64 {
		if word == "-" {
			return none
		}
		return number(word)
	}
	exclusive, reads, both := strings.Cut(words[8], "+")
	if !both {
		reads = "0"
	}
	op := operation{
		step:   words[1],
		hold:   int(number(words[2])),
		token:  uint64(number(words[3])),
		share:  share{uint64(number(exclusive)), uint64(number(reads))},
		beside: int(numberOr(words[9], -1)),
		called: number(words[4]),
		ended:  numberOr(words[5], never),
		strict: words[6] == "1",
	}
	return name, op, err
}

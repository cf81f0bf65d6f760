// Locks in Go at their defaults, as worker processes of `cargo xtask bench`: `peers KIND URL THREADS`.
//
// They are told what to do as bench/src/serve.rs is: a line of JSON each on standard input, answered by one on
// standard output.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"time"
)

type command struct {
	Do       string `json:"do"`
	Name     string `json:"name"`
	Count    int    `json:"count"`
	Tasks    int    `json:"tasks"`
	Distinct bool   `json:"distinct"`
	Micros   int64  `json:"us"`
	Hold     int64  `json:"hold_us"`
	Pause    int64  `json:"pause_us"`
}

type answer map[string]any

func main() {
	if len(os.Args) != 4 {
		panic("peers KIND URL THREADS")
	}
	threads, err := strconv.Atoi(os.Args[3])
	must(err)
	runtime.GOMAXPROCS(threads)
	serve(connect(os.Args[1], os.Args[2]))
}

func serve(locks service) {
	out := json.NewEncoder(os.Stdout)
	must(out.Encode(answer{"ready": true}))
	held := &holds{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var told command
		must(json.Unmarshal(lines.Bytes(), &told))
		must(out.Encode(load(locks, held, told)))
	}
}

func load(locks service, held *holds, told command) answer {
	switch told.Do {
	case "pairs":
		return pairs(locks, told)
	case "turns":
		return turns(locks, told)
	case "crowd":
		return crowd(locks, told)
	case "queue":
		return queue(locks, told)
	case "hold":
		return held.hold(locks, told)
	case "release":
		return held.release()
	default:
		return answer{"error": "no such load: " + told.Do}
	}
}

func micros(count int64) time.Duration {
	return time.Duration(count) * time.Microsecond
}

// A lock that cannot be had is no measurement.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

package main

// pair is a lock that two may hold at once, for tests. It knows no levels.
type pair struct {
	// holders has the smaller number first; 0 is nobody, so that holds are counted from 1 on.
	holders [2]int
	fence   uint64
}

func (p pair) heldBy(hold int) bool { return p.holders[0] == hold+1 || p.holders[1] == hold+1 }

func (p pair) apply(op operation) (lock, bool) {
	switch op.step {
	case "grant":
		next := pair{[2]int{p.holders[1], op.hold + 1}, op.token}
		if next.holders[0] > next.holders[1] {
			next.holders[0], next.holders[1] = next.holders[1], next.holders[0]
		}
		return next, p.holders[0] == 0 && op.token > p.fence
	case "release", "gone":
		rest := p.holders[0]
		if rest == op.hold+1 {
			rest = p.holders[1]
		}
		return pair{[2]int{0, rest}, p.fence}, p.heldBy(op.hold)
	case "deny":
		return p, p.holders[0] != 0
	}
	return p, false
}

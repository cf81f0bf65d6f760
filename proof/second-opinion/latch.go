package main

// latch is a count-down latch. The count is 0 if there is none; otherwise set is the call that has set it.
type latch struct {
	count uint64
	set   int
}

// heldBy is false: nobody holds a latch.
func (l latch) heldBy(int) bool { return false }

func (l latch) apply(op operation) (lock, bool) {
	// beside is the answer, below 0 if there was none.
	answers := func(answer bool, yes uint64) bool {
		said := uint64(0)
		if answer {
			said = yes
		}
		return op.beside < 0 || uint64(op.beside) == said
	}
	there := l.count > 0
	switch op.step {
	case "set":
		next := l
		if !there {
			next = latch{op.share.exclusive, op.hold}
		}
		return next, answers(!there, 1)
	case "down":
		var next latch
		if l.count > 1 {
			next = latch{l.count - 1, l.set}
		}
		return next, answers(true, next.count)
	case "delete":
		return latch{}, answers(there, 1)
	case "count":
		return l, op.share.exclusive == l.count
	case "over":
		return latch{}, there && l.set == op.hold
	case "forgotten":
		return latch{}, true
	}
	return l, false
}

package main

// permits is how many a semaphore of the histories has.
const permits = 3

// semaphore says who has how many permits. Each holder has one at least, so that there are never more holders than
// permits.
type semaphore struct {
	// holders are in the order of their numbers, those that there are first. They are counted from 1 on.
	holders [permits]struct {
		hold int
		has  uint64
	}
	fence uint64
}

func (s semaphore) heldBy(hold int) bool {
	for _, holder := range s.holders {
		if holder.hold == hold+1 {
			return true
		}
	}
	return false
}

func (s semaphore) roomFor(wanted uint64) bool {
	taken := wanted
	for _, holder := range s.holders {
		taken += holder.has
	}
	return taken <= permits
}

// with gives this hold so many permits, and takes away all that it has for 0.
func (s semaphore) with(hold int, has uint64) semaphore {
	next := semaphore{fence: s.fence}
	count := 0
	add := func(hold int, has uint64) {
		next.holders[count].hold, next.holders[count].has = hold, has
		count++
	}
	for _, holder := range s.holders {
		if has > 0 && holder.hold > hold+1 {
			add(hold+1, has)
			has = 0
		}
		if holder.hold != 0 && holder.hold != hold+1 {
			add(holder.hold, holder.has)
		}
	}
	if has > 0 {
		add(hold+1, has)
	}
	return next
}

func (s semaphore) apply(op operation) (lock, bool) {
	switch op.step {
	case "grant":
		wanted := op.share.exclusive
		if wanted == 0 || !s.roomFor(wanted) || op.token <= s.fence {
			return s, false
		}
		next := s.with(op.hold, wanted)
		next.fence = op.token
		return next, true
	case "release", "gone":
		return s.with(op.hold, 0), s.heldBy(op.hold)
	case "deny":
		return s, !s.roomFor(op.share.exclusive)
	}
	return s, false
}

package main

import (
	"fmt"
	"sort"
	"strings"
)

// readWrite is a lock that many may read, or one may write. There may be any number of readers, so that it is a text:
// "hold exclusive reads" for each hold, in the order of their numbers, with a semicolon behind each.
type readWrite struct {
	holders string
	fence   uint64
}

func (l readWrite) shares() map[int]share {
	shares := make(map[int]share)
	for _, holder := range strings.Split(l.holders, ";") {
		var hold int
		var has share
		if _, err := fmt.Sscanf(holder, "%d %d %d", &hold, &has.exclusive, &has.reads); err == nil {
			shares[hold] = has
		}
	}
	return shares
}

func (l readWrite) heldBy(hold int) bool {
	_, held := l.shares()[hold]
	return held
}

// with gives this hold what it has from now on; nothing takes it away.
func (l readWrite) with(hold int, has share) readWrite {
	shares := l.shares()
	shares[hold] = has
	var holds []int
	for hold := range shares {
		holds = append(holds, hold)
	}
	sort.Ints(holds)
	var text strings.Builder
	for _, hold := range holds {
		if has := shares[hold]; has.total() > 0 {
			fmt.Fprintf(&text, "%d %d %d;", hold, has.exclusive, has.reads)
		}
	}
	return readWrite{text.String(), l.fence}
}

// freeFor says whether so much can be had beside a hold of the same owner.
func (l readWrite) freeFor(wanted share, beside int) bool {
	for hold, has := range l.shares() {
		if hold != beside && (wanted.exclusive > 0 || has.exclusive > 0) {
			return false
		}
	}
	return true
}

func (l readWrite) apply(op operation) (lock, bool) {
	had, held := l.shares()[op.hold]
	more := func(more, fewer share) bool {
		return more == share{fewer.exclusive + 1, fewer.reads} || more == share{fewer.exclusive, fewer.reads + 1}
	}
	switch op.step {
	case "grant":
		next := l.with(op.hold, op.share)
		next.fence = op.token
		// Where two servers answer, the read may have ended on one of them.
		isBeside := !op.strict || op.beside < 0 || l.heldBy(op.beside)
		return next, isBeside && l.freeFor(op.share, op.beside) && op.token > l.fence
	case "nest":
		mayWrite := op.share.exclusive == 0 || had.exclusive > 0
		return l.with(op.hold, op.share), held && mayWrite && more(op.share, had)
	case "leave":
		return l.with(op.hold, op.share), held && more(had, op.share)
	case "downgrade":
		return l.with(op.hold, share{0, 1}), held && had == share{1, 0}
	case "release":
		return l.with(op.hold, share{}), held && had.total() == 1
	case "gone":
		return l.with(op.hold, share{}), held
	case "deny":
		return l, !l.freeFor(op.share, op.beside)
	}
	return l, false
}

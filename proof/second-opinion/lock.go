package main

import (
	"math"

	"github.com/anishathalye/porcupine"
)

// never is the end of an operation that need not happen.
const never = math.MaxInt64

// operation is something that was done to a lock, or may have been done.
type operation struct {
	// step is grant, nest, leave, downgrade, release, gone (the hold ended by itself) or deny; of a latch: set, down,
	// delete, count, over (its time is over) or forgotten (the server lost its data).
	step string
	// hold is a number for each hold. Each is granted once. Of a latch: the call that has set it.
	hold int
	// token is that of a grant.
	token uint64
	// share is what is granted or refused, or all that the hold has afterwards; of a latch the count.
	share share
	// beside is the hold of the same owner that a grant or refusal is beside, or -1; of a latch the answer.
	beside int
	called int64
	// ended is never for what may have had no effect.
	ended int64
	// strict is false for what comes to nothing if its hold is over, and for a grant that does not need the hold
	// beside it.
	strict bool
}

// share is how much of a lock: levels or permits that let nobody else have them, and reads.
type share struct {
	exclusive, reads uint64
}

func (s share) total() uint64 { return s.exclusive + s.reads }

// lock is the state of a lock of some kind. States are compared with ==.
type lock interface {
	// apply gives the lock after an operation, if the lock allows it.
	apply(op operation) (lock, bool)
	// heldBy says whether this hold has the lock.
	heldBy(hold int) bool
}

// kinds has for each kind of lock, as histories name it, the lock that nobody has had yet.
var kinds = map[string]lock{
	"reentrant":  mutex{},
	"read-write": readWrite{},
	"semaphore":  semaphore{},
	"latch":      latch{},
	"flight":     mutex{},
	"fair":       mutex{},
}

// after gives every state that a lock may have after an operation.
func after(l lock, op operation) []interface{} {
	var possible []interface{}
	if next, allowed := l.apply(op); allowed {
		possible = append(possible, next)
	}
	if op.ended == never || !op.strict && op.step != "grant" && !l.heldBy(op.hold) {
		possible = append(possible, l)
	}
	return possible
}

// modelOf is what Porcupine is told of a lock that begins like this.
func modelOf(begin lock) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{begin} },
		Step: func(state, input, _ interface{}) []interface{} {
			return after(state.(lock), input.(operation))
		},
	}).ToModel()
}

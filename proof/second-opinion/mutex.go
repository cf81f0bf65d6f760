package main

import (
	"math"

	"github.com/anishathalye/porcupine"
)

// never is the end of an operation that need not happen.
const never = math.MaxInt64

// operation is something that was done to a lock, or may have been done.
type operation struct {
	// step is grant, nest, leave, release, gone (the hold ended by itself) or deny.
	step string
	// hold is a number for each hold. Each is granted once.
	hold int
	// number is the token of a grant, the depth of a nested level, or how many levels are left.
	number uint64
	called int64
	// ended is never for what may have had no effect.
	ended int64
	// strict is false for what comes to nothing if its hold is over.
	strict bool
}

// mutex is a reentrant, fenced mutex. Nobody holds it if depth is 0.
type mutex struct {
	holder int
	depth  uint64
	fence  uint64
}

// apply gives the mutex after an operation, if the mutex allows it.
func (m mutex) apply(op operation) (mutex, bool) {
	held := m.depth > 0 && m.holder == op.hold
	switch op.step {
	case "grant":
		return mutex{op.hold, 1, op.number}, m.depth == 0 && op.number > m.fence
	case "nest":
		return mutex{m.holder, op.number, m.fence}, held && op.number == m.depth+1
	case "leave":
		return mutex{m.holder, op.number, m.fence}, held && op.number+1 == m.depth
	case "release":
		return mutex{fence: m.fence}, held && m.depth == 1
	case "gone":
		return mutex{fence: m.fence}, held
	case "deny":
		return m, m.depth > 0
	}
	return m, false
}

// after gives every mutex that there may be after an operation.
func (m mutex) after(op operation) []interface{} {
	var possible []interface{}
	if next, allowed := m.apply(op); allowed {
		possible = append(possible, next)
	}
	over := m.depth == 0 || m.holder != op.hold
	if op.ended == never || !op.strict && over {
		possible = append(possible, m)
	}
	return possible
}

var model = (&porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{mutex{}} },
	Step: func(state, input, _ interface{}) []interface{} {
		return state.(mutex).after(input.(operation))
	},
}).ToModel()

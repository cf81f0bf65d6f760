package main

// mutex is a reentrant, fenced mutex. Nobody holds it if depth is 0.
type mutex struct {
	holder int
	depth  uint64
	fence  uint64
}

func (m mutex) heldBy(hold int) bool { return m.depth > 0 && m.holder == hold }

func (m mutex) apply(op operation) (lock, bool) {
	held := m.heldBy(op.hold)
	switch op.step {
	case "grant":
		return mutex{op.hold, 1, op.token}, m.depth == 0 && op.token > m.fence
	case "nest":
		return mutex{m.holder, op.share.total(), m.fence}, held && op.share.total() == m.depth+1
	case "leave":
		return mutex{m.holder, op.share.total(), m.fence}, held && op.share.total()+1 == m.depth
	case "release":
		return mutex{fence: m.fence}, held && m.depth == 1
	case "gone":
		return mutex{fence: m.fence}, held
	case "deny":
		return m, m.depth > 0
	}
	return m, false
}

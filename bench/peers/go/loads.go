package main

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Nanoseconds on a clock that all processes of this machine share.
func now() int64 {
	var at unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &at))
	return at.Nano()
}

// One task, one name, nobody else.
func pairs(locks service, told command) answer {
	times := make([]int64, told.Count)
	for at := range times {
		start := now()
		locks(told.Name)()
		times[at] = now() - start
	}
	return answer{"ns": times}
}

// Several processes take turns on one name: asked, granted, released.
func turns(locks service, told command) answer {
	turns := make([][3]int64, told.Count)
	for at := range turns {
		asked := now()
		release := locks(told.Name)
		granted := now()
		time.Sleep(micros(told.Hold))
		turns[at] = [3]int64{asked, granted, now()}
		release()
		time.Sleep(micros(told.Pause))
	}
	return answer{"turns": turns}
}

// Many tasks at once, on one name or each on its own. Each locks, keeps and unlocks until time is up.
func crowd(locks service, told command) answer {
	waits := make([][]int64, told.Tasks)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for task := range waits {
		name := told.Name
		if told.Distinct {
			name += ":" + strconv.Itoa(task)
		}
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			waits[task] = work(locks, name, micros(told.Micros), micros(told.Hold))
		})
	}
	ready.Wait()
	begin := now()
	close(start)
	done.Wait()
	return summary(waits, now()-begin)
}

func work(locks service, name string, length, hold time.Duration) (waits []int64) {
	for end := now() + length.Nanoseconds(); ; {
		asked := now()
		if asked >= end {
			return waits
		}
		release := locks(name)
		waits = append(waits, now()-asked)
		if hold > 0 {
			time.Sleep(hold)
		}
		release()
	}
}

func summary(tasks [][]int64, took int64) answer {
	all := slices.Concat(tasks...)
	slices.Sort(all)
	at := func(share int) int64 {
		if len(all) == 0 {
			return 0
		}
		return all[(len(all)-1)*share/100]
	}
	var sum int64
	for _, wait := range all {
		sum += wait
	}
	least, most := len(tasks[0]), 0
	for _, own := range tasks {
		least, most = min(least, len(own)), max(most, len(own))
	}
	return answer{
		"grants": len(all), "ns": took, "mean": sum / int64(max(len(all), 1)),
		"p50": at(50), "p95": at(95), "p99": at(99), "max": at(100), "least": least, "most": most,
	}
}

// Tasks that wait for one name; each gets it once.
func queue(locks service, told command) answer {
	begin := now()
	var tasks sync.WaitGroup
	for range told.Tasks {
		tasks.Go(func() { locks(told.Name)() })
	}
	tasks.Wait()
	return answer{"begin": begin, "end": now()}
}

// Locks that stay held.
type holds struct {
	releases []func()
}

func (held *holds) hold(locks service, told command) answer {
	begin := now()
	for number := range told.Count {
		held.releases = append(held.releases, locks(told.Name+":"+strconv.Itoa(number)))
	}
	return answer{"begin": begin, "end": now(), "held": len(held.releases)}
}

func (held *holds) release() answer {
	begin := now()
	for _, release := range held.releases {
		release()
	}
	held.releases = nil
	return answer{"begin": begin, "end": now()}
}

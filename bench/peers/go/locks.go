package main

import (
	"context"
	"strings"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// A service waits until the lock is held; what it returns gives the lock up and waits for the confirmation.
type service func(name string) (release func())

func connect(kind, url string) service {
	switch kind {
	case "rueidislock":
		return connectRueidislock(url)
	case "redsync":
		return connectRedsync(url)
	default:
		panic("no such kind: " + kind)
	}
}

// One key for a lock, as the others have it: all else is left at its default.
func connectRueidislock(url string) service {
	option, err := rueidis.ParseURL(url)
	must(err)
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: option, KeyMajority: 1})
	must(err)
	return func(name string) func() {
		_, cancel, err := locker.WithContext(context.Background(), name)
		must(err)
		return cancel
	}
}

// Over all of several servers, whose URLs have commas between them.
func connectRedsync(url string) service {
	var pools []redsyncredis.Pool
	for _, one := range strings.Split(url, ",") {
		options, err := redis.ParseURL(one)
		must(err)
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}
	locks := redsync.New(pools...)
	return func(name string) func() {
		mutex := locks.NewMutex(name)
		// Gives up after 32 attempts by itself, or when its pool has no connection in time.
		for mutex.Lock() != nil {
		}
		return func() {
			_, err := mutex.Unlock()
			must(err)
		}
	}
}

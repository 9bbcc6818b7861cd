package rig

import (
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"
)

// CPU returns the processor time that this process has used.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Load returns the machine's load average over one minute; empty where the system does not say.
func Load() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}

// Memory is what the process has in use after a collection.
type Memory struct {
	Bytes      float64 // live heap and stacks
	Goroutines float64
}

// MeasureMemory collects garbage and measures. What is being torn down gets a moment to end.
func MeasureMemory() Memory {
	time.Sleep(100 * time.Millisecond)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if memoryProfile != "" {
		writeMemoryProfile()
	}
	return Memory{float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())}
}

// memoryProfile is the file for a heap profile; empty: none.
var memoryProfile string

func writeMemoryProfile() {
	file, err := os.Create(memoryProfile)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	if err := pprof.Lookup("heap").WriteTo(file, 0); err != nil {
		log.Fatal(err)
	}
}

// Minus returns the growth since before.
func (m Memory) Minus(before Memory) Memory {
	return Memory{m.Bytes - before.Bytes, m.Goroutines - before.Goroutines}
}

func environment() string {
	return fmt.Sprintf("%s %s/%s, GOMAXPROCS %d, load average %s", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), Load())
}

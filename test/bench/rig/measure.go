package rig

import (
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// Main runs a program: it parses the flags and ends the process with the error of run, if any.
func Main(run func(out io.Writer) error) {
	cpu := flag.String("cpuprofile", "", "write a CPU profile of the whole program to this file")
	flag.StringVar(&memoryProfile, "memprofile", "", "write a heap profile of the last measurement of memory to this file")
	flag.BoolVar(&verbose, "v", false, "write the workers' logs to stderr")
	flag.Parse()
	log.SetFlags(0)
	if flag.NArg() > 0 {
		log.Fatalf("unexpected argument %q", flag.Arg(0))
	}
	if memoryProfile != "" {
		runtime.MemProfileRate = 512
	}
	if err := profiled(*cpu, func() error { return run(os.Stdout) }); err != nil {
		log.Fatal(err)
	}
}

// profiled runs f under the CPU profiler where a file is given.
func profiled(path string, f func() error) error {
	if path == "" {
		return f()
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}

// Run is one run of a measurement.
type Run struct {
	// Number counts from 0.
	Number int

	figures *[]figure
}

type figure struct {
	name, unit, goal string
	values           []float64
}

// Add adds a value to the figure of that name. The goal is printed beside it.
func (r *Run) Add(name string, value float64, unit, goal string) {
	i := slices.IndexFunc(*r.figures, func(f figure) bool { return f.name == name })
	if i < 0 {
		i = len(*r.figures)
		*r.figures = append(*r.figures, figure{name: name, unit: unit, goal: goal})
	}
	(*r.figures)[i].values = append((*r.figures)[i].values, value)
}

// Time adds a duration, in milliseconds.
func (r *Run) Time(name string, d time.Duration, goal string) {
	r.Add(name, float64(d)/float64(time.Millisecond), "ms", goal)
}

// Quantiles adds the median, the 99th percentile and the longest of the durations.
func (r *Run) Quantiles(name string, ds []time.Duration, goal string) {
	if len(ds) == 0 {
		return
	}
	ds = slices.Sorted(slices.Values(ds))
	r.Time(name+" p50", Quantile(ds, 0.5), "")
	r.Time(name+" p99", Quantile(ds, 0.99), goal)
	r.Time(name+" longest", ds[len(ds)-1], "")
}

// Quantile returns the smallest value of the sorted list that at least the share q of the list does not exceed.
func Quantile[T any](sorted []T, q float64) T {
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Measure runs f the given number of times and prints what it added: median, min and max over the runs.
func Measure(out io.Writer, title string, runs int, f func(r *Run) error) error {
	fmt.Fprintf(out, "%s\n  %s, %d run(s)\n", title, environment(), runs)
	var figures []figure
	for i := range runs {
		if err := f(&Run{Number: i, figures: &figures}); err != nil {
			return fmt.Errorf("%s, run %d: %w", title, i, err)
		}
	}
	width := 0
	for _, f := range figures {
		width = max(width, len([]rune(f.name)))
	}
	fmt.Fprintf(out, "  %-*s %12s %12s %12s  %-6s %s\n", width, "", "median", "min", "max", "", "goal")
	for _, f := range figures {
		slices.Sort(f.values)
		fmt.Fprintf(out, "  %s%s %12s %12s %12s  %-6s %s\n", f.name, strings.Repeat(" ", width-len([]rune(f.name))),
			number(Quantile(f.values, 0.5)), number(f.values[0]), number(f.values[len(f.values)-1]), f.unit, f.goal)
	}
	fmt.Fprintf(out, "  load average at the end %s\n\n", Load())
	return nil
}

// number prints three digits, more where they are before the point.
func number(v float64) string {
	digits := 2 - int(math.Floor(math.Log10(max(math.Abs(v), 1e-9))))
	return fmt.Sprintf("%.*f", min(max(digits, 0), 3), v)
}

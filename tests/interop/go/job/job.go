// Package job is the loop of a Go peer: jobs come as lines of JSON on stdin, answers go as lines of JSON to stdout.
// The protocol is told in tests/interop/peer.py.
package job

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Job is one line of stdin. An op uses the fields that it needs.
type Job struct {
	Op         string            `json:"op"`
	Bootstrap  string            `json:"bootstrap"`
	Topic      string            `json:"topic"`
	Topics     []string          `json:"topics"`
	Group      string            `json:"group"`
	Protocol   string            `json:"protocol"`
	Assignor   string            `json:"assignor"`
	Codec      string            `json:"codec"`
	Acks       string            `json:"acks"`
	Idempotent bool              `json:"idempotent"`
	Each       bool              `json:"each"`
	Records    []Record          `json:"records"`
	From       map[string]int64  `json:"from"`
	Count      int               `json:"count"`
	Isolation  string            `json:"isolation"`
	ID         string            `json:"id"`
	Offsets    map[string]int64  `json:"offsets"`
	Commit     bool              `json:"commit"`
	TimeoutMs  int64             `json:"timeout_ms"`
	Partition  int32             `json:"partition"`
	At         any               `json:"at"`
	Offset     int64             `json:"offset"`
	Configs    map[string]string `json:"configs"`
	// Partitions is a count for the admin's ops and a list for consume.
	Partitions json.RawMessage `json:"partitions"`
	// Access is for the op secured.
	Access
}

// Record is a record of the protocol. A []byte is base64 in JSON, and nil is null.
type Record struct {
	Partition int32    `json:"p"`
	Offset    int64    `json:"o"`
	Timestamp int64    `json:"t"`
	Key       []byte   `json:"k"`
	Value     []byte   `json:"v"`
	Headers   []Header `json:"h"`
}

// Header is [name, value].
type Header struct {
	Name  string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

func (h *Header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

// Ack is what became of a record.
type Ack struct {
	Partition int32 `json:"p"`
	Offset    int64 `json:"o"`
}

// PartitionCount is the number of partitions that an admin's op names.
func (j *Job) PartitionCount() int {
	var count int
	if err := json.Unmarshal(j.Partitions, &count); err != nil {
		panic(err)
	}
	return count
}

// Leave is closed or filled when the driver ends a group's job.
var Leave = make(chan struct{}, 16)

var out sync.Mutex

// Say writes one line.
func Say(answer any) {
	line, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	fmt.Fprintf(os.Stdout, "%s\n", line)
}

// Run serves jobs until stdin closes. code gives Kafka's number of a client's error.
func Run(do func(*Job) error, code func(error) (int16, bool)) {
	jobs := make(chan *Job, 16)
	go func() {
		defer close(jobs)
		lines := bufio.NewScanner(os.Stdin)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			job := new(Job)
			if err := json.Unmarshal(lines.Bytes(), job); err != nil {
				panic(err)
			}
			if job.Op == "leave" {
				Leave <- struct{}{}
				continue
			}
			jobs <- job
		}
	}()
	for job := range jobs {
		err := do(job)
		if err == nil {
			Say(map[string]bool{"done": true})
			continue
		}
		fmt.Fprintln(os.Stderr, job.Op, err)
		what := map[string]any{"code": nil, "name": Types(err), "message": err.Error()}
		if number, known := code(err); known {
			what["code"] = number
		}
		Say(map[string]any{"error": what})
	}
}

// Command yaml-oracle tells what kubectl reads of YAML texts: each line of standard input is a text as a JSON string, and the line
// of the answer is {"documents": […]} or {"error": "…"}.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	kubernetes "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

type answer struct {
	Documents []json.RawMessage `json:"documents"`
	Error     string            `json:"error,omitempty"`
}

func main() {
	questions, answers := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var text string
		if err := questions.Decode(&text); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			panic(err)
		}
		if err := answers.Encode(read(text)); err != nil {
			panic(err)
		}
	}
}

func read(text string) answer {
	documents := []json.RawMessage{}
	reader := kubernetes.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return answer{Documents: documents}
		}
		var read []byte
		if err == nil {
			read, err = yaml.YAMLToJSON(document)
		}
		if err != nil {
			return answer{Error: err.Error()}
		}
		documents = append(documents, read)
	}
}

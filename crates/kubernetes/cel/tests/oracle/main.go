// Reads cases (JSON: a list of {"schema", "rule", "self", "oldSelf"}) from standard input and writes what Kubernetes'
// own code makes of each: compilation error, estimated and actual cost, and the errors of a validation.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/cel/environment"
)

type testCase struct {
	Schema  json.RawMessage `json:"schema"`
	Rule    string          `json:"rule"`
	Self    json.RawMessage `json:"self"`
	OldSelf json.RawMessage `json:"oldSelf,omitempty"`
}

type answer struct {
	testCase
	Compile string   `json:"compile,omitempty"`
	MaxCost uint64   `json:"maxCost"`
	Cost    int64    `json:"cost"`
	Errors  []string `json:"errors,omitempty"`
}

func decode(raw json.RawMessage) interface{} {
	if len(raw) == 0 {
		return nil
	}
	var v interface{}
	if err := utiljson.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	return v
}

func run(c testCase) answer {
	a := answer{testCase: c}
	outer := v1.JSONSchemaProps{}
	if err := json.Unmarshal(c.Schema, &outer); err != nil {
		panic(err)
	}
	internal := apiextensions.JSONSchemaProps{}
	if err := v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&outer, &internal, nil); err != nil {
		panic(err)
	}
	s, err := schema.NewStructural(&internal)
	if err != nil {
		panic(err)
	}
	if c.Rule != "" {
		s.XValidations = append(s.XValidations, v1.ValidationRule{Rule: c.Rule})
	}
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion(), true)
	results, err := cel.Compile(s, model.SchemaDeclType(s, false), 1000000, env, cel.NewExpressionsEnvLoader())
	if err != nil {
		panic(err)
	}
	for _, r := range results {
		if r.Error != nil {
			a.Compile = r.Error.Detail
			return a
		}
		a.MaxCost = r.MaxCost
	}
	v := cel.NewValidator(s, false, 1000000)
	errs, left := v.Validate(context.Background(), nil, s, decode(c.Self), decode(c.OldSelf), 10000000)
	a.Cost = 10000000 - left
	for _, e := range errs {
		a.Errors = append(a.Errors, fmt.Sprint(e))
	}
	return a
}

func main() {
	var cases []testCase
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	out := []answer{}
	for _, c := range cases {
		func() {
			defer func() {
				if r := recover(); r != nil {
					fmt.Fprintln(os.Stderr, "case", c.Rule, r)
				}
			}()
			out = append(out, run(c))
		}()
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	_ = enc.Encode(out)
}

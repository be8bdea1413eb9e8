// Writes crates/kubernetes/core-kinds/src/kinds.txt, the table of the kinds that the embedded API server knows itself.
//
// Names, types, protobuf numbers and what Go's encoder leaves out come from the types of k8s.io/api by reflection; what
// is required, how lists are keyed and defaults come from the OpenAPI documents of k8s.io/kubernetes, and what a field may
// be from its generated definitions, both read from the module cache. The texts for people are our own: they stand in the
// table and are carried over; a field that has none yet gets its name in words.
//
//	go run . ../../../crates/kubernetes/core-kinds/src/kinds.txt          rewrites the table
//	go run . -check ../../../crates/kubernetes/core-kinds/src/kinds.txt   fails if it is not what would be written
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"unicode"

	admission "k8s.io/api/admissionregistration/v1"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	networking "k8s.io/api/networking/v1"
	node "k8s.io/api/node/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"
)

const kubernetes = "v1.34.4"

type root struct {
	gvk   string
	value any
}

// In this order; what they refer to comes before the first that needs it.
var roots = []root{
	{"", meta.OwnerReference{}}, {"", meta.ManagedFieldsEntry{}}, {"", meta.ObjectMeta{}}, {"", meta.ListMeta{}},
	{"/v1/Status", meta.Status{}}, {"/v1/DeleteOptions", meta.DeleteOptions{}}, {"", meta.Condition{}},
	{"", meta.LabelSelector{}}, {"meta.k8s.io/v1/PartialObjectMetadata", meta.PartialObjectMetadata{}},
	{"/v1/APIVersions", meta.APIVersions{}}, {"/v1/APIGroup", meta.APIGroup{}}, {"/v1/APIGroupList", meta.APIGroupList{}},
	{"/v1/APIResourceList", meta.APIResourceList{}},
	{"/v1/Namespace", core.Namespace{}}, {"/v1/Secret", core.Secret{}}, {"/v1/ConfigMap", core.ConfigMap{}},
	{"/v1/ServiceAccount", core.ServiceAccount{}}, {"/v1/Event", core.Event{}}, {"/v1/Node", core.Node{}},
	{"/v1/Service", core.Service{}}, {"/v1/Endpoints", core.Endpoints{}},
	{"events.k8s.io/v1/Event", events.Event{}}, {"coordination.k8s.io/v1/Lease", coordination.Lease{}},
	{"discovery.k8s.io/v1/EndpointSlice", discovery.EndpointSlice{}},
	{"rbac.authorization.k8s.io/v1/Role", rbac.Role{}}, {"rbac.authorization.k8s.io/v1/RoleBinding", rbac.RoleBinding{}},
	{"rbac.authorization.k8s.io/v1/ClusterRole", rbac.ClusterRole{}},
	{"rbac.authorization.k8s.io/v1/ClusterRoleBinding", rbac.ClusterRoleBinding{}},
	{"authentication.k8s.io/v1/TokenRequest", authentication.TokenRequest{}},
	{"authentication.k8s.io/v1/TokenReview", authentication.TokenReview{}},
	{"authentication.k8s.io/v1/SelfSubjectReview", authentication.SelfSubjectReview{}},
	{"authorization.k8s.io/v1/SubjectAccessReview", authorization.SubjectAccessReview{}},
	{"authorization.k8s.io/v1/LocalSubjectAccessReview", authorization.LocalSubjectAccessReview{}},
	{"authorization.k8s.io/v1/SelfSubjectAccessReview", authorization.SelfSubjectAccessReview{}},
	{"authorization.k8s.io/v1/SelfSubjectRulesReview", authorization.SelfSubjectRulesReview{}},
	{"admissionregistration.k8s.io/v1/MutatingWebhookConfiguration", admission.MutatingWebhookConfiguration{}},
	{"admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration", admission.ValidatingWebhookConfiguration{}},
	{"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy", admission.ValidatingAdmissionPolicy{}},
	{"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding", admission.ValidatingAdmissionPolicyBinding{}},
	{"autoscaling/v1/Scale", autoscaling.Scale{}},
	{"/v1/ResourceQuota", core.ResourceQuota{}}, {"/v1/LimitRange", core.LimitRange{}},
	{"certificates.k8s.io/v1/CertificateSigningRequest", certificates.CertificateSigningRequest{}},
	{"networking.k8s.io/v1/Ingress", networking.Ingress{}}, {"networking.k8s.io/v1/IngressClass", networking.IngressClass{}},
	{"networking.k8s.io/v1/NetworkPolicy", networking.NetworkPolicy{}}, {"node.k8s.io/v1/RuntimeClass", node.RuntimeClass{}},
	{"policy/v1/PodDisruptionBudget", policy.PodDisruptionBudget{}},
	{"scheduling.k8s.io/v1/PriorityClass", scheduling.PriorityClass{}},
	{"apiextensions.k8s.io/v1/CustomResourceDefinition", extensions.CustomResourceDefinition{}},
	{"", meta.WatchEvent{}}, {"", version.Info{}},
}

// Types with a form of their own in JSON.
var special = map[reflect.Type]string{
	reflect.TypeOf(meta.Time{}): "time", reflect.TypeOf(meta.MicroTime{}): "microtime",
	reflect.TypeOf(resource.Quantity{}): "quantity", reflect.TypeOf(intstr.IntOrString{}): "intorstring",
	reflect.TypeOf(meta.FieldsV1{}): "json", reflect.TypeOf(runtime.RawExtension{}): "json",
	reflect.TypeOf(extensions.JSON{}): "json", reflect.TypeOf(extensions.JSONSchemaPropsOrArray{}): "json",
	reflect.TypeOf(extensions.JSONSchemaPropsOrBool{}): "json", reflect.TypeOf(extensions.JSONSchemaPropsOrStringArray{}): "json",
}

type field struct {
	name, number, ty, doc string
	required              bool
	marks                 []string
}

type def struct {
	name, gvk, doc string
	fields         []field
}

type schema struct {
	Required   []string           `json:"required"`
	Properties map[string]*schema `json:"properties"`
	Default    any                `json:"default"`
	MapType    string             `json:"x-kubernetes-map-type"`
	ListType   string             `json:"x-kubernetes-list-type"`
	ListKeys   []string           `json:"x-kubernetes-list-map-keys"`
}

var (
	schemas = map[string]*schema{}
	choices = map[string]string{}
	defs    []def
	done    = map[reflect.Type]bool{}
	texts   = map[string]string{}
)

func main() {
	args := os.Args[1:]
	check := len(args) > 0 && args[0] == "-check"
	if check {
		args = args[1:]
	}
	if len(args) != 1 {
		fail(fmt.Errorf("one argument is needed: the table's path"))
	}
	before, err := os.ReadFile(args[0])
	fail(err)
	readTexts(string(before))
	readSchemas()
	for _, r := range roots {
		add(reflect.TypeOf(r.value), r.gvk)
	}
	after := render()
	switch {
	case !check:
		fail(os.WriteFile(args[0], []byte(after), 0o644))
	case after != string(before):
		fail(fmt.Errorf("%s is not what the Kubernetes types give: write it anew", args[0]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func readTexts(table string) {
	owner := ""
	for _, line := range strings.Split(table, "\n") {
		facts, text, found := strings.Cut(line, " | ")
		if !found || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(facts)
		if words[0] == "def" {
			owner = words[1]
			texts[owner] = text
			continue
		}
		name, _, _ := strings.Cut(words[0], "=")
		texts[owner+"/"+strings.TrimSuffix(name, "!")] = text
	}
}

func readSchemas() {
	out, err := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@"+kubernetes).Output()
	fail(err)
	var module struct{ Dir string }
	fail(json.Unmarshal(out, &module))
	files, err := filepath.Glob(filepath.Join(module.Dir, "api/openapi-spec/v3/*_openapi.json"))
	fail(err)
	if len(files) == 0 {
		fail(fmt.Errorf("no OpenAPI documents in %s", module.Dir))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		fail(err)
		var document struct {
			Components struct{ Schemas map[string]*schema }
		}
		fail(json.Unmarshal(text, &document))
		for name, s := range document.Components.Schemas {
			schemas[name] = s
		}
	}
	readChoices(filepath.Join(module.Dir, "pkg/generated/openapi/zz_generated.openapi.go"))
	definitions, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/apiextensions-apiserver").Output()
	fail(err)
	readChoices(filepath.Join(strings.TrimSpace(string(definitions)), "pkg/generated/openapi/zz_generated.openapi.go"))
}

var (
	function = regexp.MustCompile(`^func schema_(?:k8sio_)?(\w+)\(`)
	property = regexp.MustCompile(`^\t{5}"([^"]+)": \{$`)
	values   = regexp.MustCompile(`^\t+Enum: +\[\]interface\{\}\{(.*)\},$`)
)

// The documents leave out what a field may be; the generated definitions, from which they are made, have it on a line.
func readChoices(path string) {
	text, err := os.ReadFile(path)
	fail(err)
	owner, member := "", ""
	for _, line := range strings.Split(string(text), "\n") {
		if found := function.FindStringSubmatch(line); found != nil {
			owner = found[1]
		} else if found := property.FindStringSubmatch(line); found != nil {
			member = found[1]
		} else if found := values.FindStringSubmatch(line); found != nil {
			choices[owner+"/"+member] = strings.NewReplacer("\"", "", " ", "").Replace(found[1])
		}
	}
	if len(choices) == 0 {
		fail(fmt.Errorf("no choices in %s", path))
	}
}

// The part of a generated function's name that stands for a definition.
func functionOf(name string) string {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "io.k8s."), "apiextensions-apiserver.")
	return strings.NewReplacer(".", "_", "-", "_").Replace(name)
}

// io.k8s.api.core.v1.Secret of k8s.io/api/core/v1.Secret.
func nameOf(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return "io.k8s." + strings.Join(parts[1:], ".") + "." + t.Name()
}

func add(t reflect.Type, gvk string) {
	if done[t] {
		for i := range defs {
			if defs[i].name == nameOf(t) && gvk != "" {
				defs[i].gvk = gvk
			}
		}
		return
	}
	done[t] = true
	name := nameOf(t)
	known := schemas[name]
	if known == nil {
		known = &schema{}
	}
	d := def{name: name, gvk: gvk, doc: text(name, t.Name())}
	d.fields = fieldsOf(t, name, "", known)
	sort.SliceStable(d.fields, func(a, b int) bool { return d.fields[a].name < d.fields[b].name })
	defs = append(defs, d)
}

func text(key, name string) string {
	if known := texts[key]; known != "" {
		return known
	}
	switch name {
	case "apiVersion":
		return "Version of this representation."
	case "kind":
		return "Kind of this representation."
	case "metadata":
		return "Object metadata."
	case "spec":
		return "Desired state."
	case "status":
		return "Present state."
	}
	return words(name) + "."
}

// "podCIDRs" as "Pod CIDRs".
func words(name string) string {
	var out strings.Builder
	letters := []rune(name)
	for i, r := range letters {
		upper := unicode.IsUpper(r)
		follows := i+1 < len(letters) && unicode.IsLower(letters[i+1])
		if i > 0 && upper && (unicode.IsLower(letters[i-1]) || follows && letters[i+1] != 's') {
			out.WriteByte(' ')
			if follows {
				r = unicode.ToLower(r)
			}
		}
		if i == 0 {
			r = unicode.ToUpper(r)
		}
		out.WriteRune(r)
	}
	return out.String()
}

func fieldsOf(t reflect.Type, owner, within string, known *schema) []field {
	var out []field
	for i := 0; i < t.NumField(); i++ {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		number := ""
		if parts := strings.Split(f.Tag.Get("protobuf"), ","); len(parts) > 1 {
			number = within + parts[1]
			if f.Type.PkgPath() != "" && f.Type.Kind() == reflect.Slice && parts[2] == "opt" {
				number += ".1" // A named list of texts is a message of its own.
			}
		}
		if f.Anonymous && (tag == "" || strings.Contains(options, "inline")) {
			inner := fieldsOf(f.Type, owner, number+".", known)
			for at := range inner {
				if number == "" {
					inner[at].number = "" // TypeMeta stands in the envelope.
				}
			}
			out = append(out, inner...)
			continue
		}
		if tag == "-" || tag == "" {
			continue
		}
		out = append(out, fieldOf(f, tag, options, number, owner, known.Properties[tag], contains(known.Required, tag)))
	}
	return out
}

func fieldOf(f reflect.StructField, name, options, number, owner string, s *schema, required bool) field {
	pointer := f.Type.Kind() == reflect.Pointer
	ty := f.Type
	if pointer {
		ty = ty.Elem()
	}
	out := field{name: name, number: number, ty: typeOf(ty), required: required, doc: text(owner+"/"+name, name)}
	omits := strings.Contains(options, "omitempty")
	zero := strings.Contains(options, "omitzero")
	structure := ty.Kind() == reflect.Struct
	switch {
	case pointer && omits:
		out.marks = append(out.marks, "ptr")
	case pointer:
		out.marks = append(out.marks, "ptr", "always")
	case zero:
	case !omits || structure:
		out.marks = append(out.marks, "always")
	}
	if strings.Contains(f.Tag.Get("patchStrategy"), "merge") {
		out.marks = append(out.marks, "merge="+f.Tag.Get("patchMergeKey"))
	}
	leaf := leafOf(ty)
	if leaf.PkgPath() != "" && special[leaf] == "" && leaf.Kind() != reflect.Struct {
		out.marks = append(out.marks, "go="+leaf.String())
	}
	if inmost := inmostOf(ty); special[inmost] == "json" {
		out.marks = append(out.marks, "ref="+nameOf(inmost))
	}
	if found, known := choices[functionOf(owner)+"/"+name]; known {
		out.marks = append(out.marks, "enum="+found)
	}
	if s == nil {
		return out
	}
	switch {
	case s.ListType == "map":
		out.marks = append(out.marks, "listmap="+strings.Join(s.ListKeys, ","))
	case s.ListType != "":
		out.marks = append(out.marks, s.ListType)
	case s.MapType == "atomic":
		out.marks = append(out.marks, "atomic")
	}
	switch value := s.Default.(type) {
	case string:
		if value != "" {
			out.marks = append(out.marks, "default="+value)
		} else if omits {
			out.marks = append(out.marks, "zero")
		}
	case float64:
		if value == 0 && omits {
			out.marks = append(out.marks, "zero")
		}
	}
	return out
}

// What the items of lists and maps are in the end.
func leafOf(t reflect.Type) reflect.Type {
	for t.PkgPath() == "" && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Pointer) {
		t = t.Elem()
	}
	return t
}

// The same, and through names too.
func inmostOf(t reflect.Type) reflect.Type {
	for special[t] == "" && (t.Kind() == reflect.Slice || t.Kind() == reflect.Map || t.Kind() == reflect.Pointer) {
		t = t.Elem()
	}
	return t
}

func contains(list []string, text string) bool {
	for _, one := range list {
		if one == text {
			return true
		}
	}
	return false
}

func typeOf(t reflect.Type) string {
	if name, found := special[t]; found {
		return name
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeOf(t.Elem())
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64, reflect.Int:
		return "int64"
	case reflect.Float64:
		return "double"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[" + typeOf(t.Elem()) + "]"
	case reflect.Map:
		return "map<" + typeOf(t.Elem()) + ">"
	case reflect.Struct:
		add(t, "")
		return "@" + nameOf(t)
	}
	fail(fmt.Errorf("type %s has no place in the table", t))
	return ""
}

const head = `# The kinds that this server knows itself: one definition each, then its fields. Read by mod.rs.
# Written by tests/kubernetes/kinds (go run . here) from k8s.io/api, k8s.io/apimachinery and k8s.io/apiextensions-apiserver
# %s and the OpenAPI documents of k8s.io/kubernetes %s. Only the texts are edited by hand.
#
#   def NAME [gvk=GROUP/VERSION/KIND] [atomic] [required=FIELD,FIELD] | text
#     FIELD[!][=NUMBER] TYPE [ptr] [always] [merge=KEY] [go=TYPE] [ref=NAME] [enum=A,B] [listmap=KEY,KEY] [set] [atomic]
#       [default=VALUE] [zero] | text
#
# "!" is a required field, NUMBER its number in protobuf; "2.1" is field 1 within the message that is field 2.
# "required" tells the order in which schemas name them, where it is not that of the alphabet.
# Types: string bool int32 int64 double time microtime bytes quantity intorstring json map<T> [T] @NAME.
# "ptr" tells absent from zero; "always" is written even if it is zero (Go's encoder has no omitempty, or cannot omit).
# "go" is the name of a type other than string, bool or int in error texts of Go's decoder.
# "merge" is the key of a strategic merge patch ("merge=" alone: a list of plain values that is merged).
# "ref" is how schemas call a json, "enum" what they allow; "zero": they call the zero value a default though it is left out.
`

func render() string {
	var out bytes.Buffer
	fmt.Fprintf(&out, head, "v0"+strings.TrimPrefix(kubernetes, "v1"), kubernetes)
	for _, d := range defs {
		fmt.Fprintf(&out, "\ndef %s", d.name)
		if d.gvk != "" {
			fmt.Fprintf(&out, " gvk=%s", d.gvk)
		}
		if s := schemas[d.name]; s != nil && s.MapType == "atomic" {
			fmt.Fprint(&out, " atomic")
		}
		if s := schemas[d.name]; s != nil && !sort.StringsAreSorted(s.Required) {
			fmt.Fprintf(&out, " required=%s", strings.Join(s.Required, ","))
		}
		fmt.Fprintf(&out, " | %s\n", d.doc)
		for _, f := range d.fields {
			mark, number := "", ""
			if f.required {
				mark = "!"
			}
			if f.number != "" {
				number = "=" + f.number
			}
			fmt.Fprintf(&out, "  %s%s%s %s", f.name, mark, number, strings.Join(append([]string{f.ty}, f.marks...), " "))
			fmt.Fprintf(&out, " | %s\n", f.doc)
		}
	}
	return out.String()
}

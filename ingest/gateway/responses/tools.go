package responses

import (
	"strconv"
	"strings"

	"icecore/ingest/gateway/body"
	"icecore/ingest/gateway/openai"
	"icecore/ingest/gateway/turn"
)

// toolbox knows tools by the harness's names and by the engine's.
type toolbox struct {
	r      *turn.Request
	engine map[turn.ToolName]string // Custom is not set in its keys
	taken  map[string]bool
}

func (t *toolbox) read(r *turn.Request, f body.Fields) error {
	list, err := f.Get("tools").Array()
	if err != nil {
		return err
	}
	if err := t.all(list, ""); err != nil {
		return err
	}
	if r.Parallel, err = f.Get("parallel_tool_calls").Bool(); err != nil {
		return err
	}
	if len(r.Tools) == 0 {
		r.Parallel = nil // engines need no word about calls that cannot be
	}
	return nil
}

// all reads a list of tools: of the body, or of a namespace.
func (t *toolbox) all(list []body.Value, namespace string) error {
	for _, one := range list {
		f, err := one.Fields()
		if err != nil {
			return err
		}
		kind, err := f.Get("type").NeedString()
		if err != nil {
			return err
		}
		switch {
		case kind == "function":
			tool, err := openai.Function(f)
			if err != nil {
				return err
			}
			f.Drop(t.r, "type", "name", "description", "parameters", "strict", "defer_loading")
			if err := t.add(f, tool, namespace, false); err != nil {
				return err
			}
		case kind == "custom":
			tool, err := openai.Custom(t.r, f)
			if err != nil {
				return err
			}
			f.Drop(t.r, "type", "name", "description", "format", "defer_loading")
			if err := t.add(f, tool, namespace, true); err != nil {
				return err
			}
		case kind == "namespace" && namespace == "":
			if err := t.namespace(one, f); err != nil {
				return err
			}
		default:
			t.r.Rewrite("dropped_tool", one.Path(), "a tool of type "+kind+" runs on the provider's side, which is not there")
		}
	}
	return nil
}

// namespace reads nested tools. What it says of itself goes before what its first tool
// says: engines know no place for it.
func (t *toolbox) namespace(v body.Value, f body.Fields) error {
	name, err := f.Get("name").NeedString()
	if err != nil {
		return err
	}
	description, err := f.Get("description").String()
	if err != nil {
		return err
	}
	f.Drop(t.r, "type", "name", "description", "tools")
	list, err := f.Get("tools").Array()
	if err != nil {
		return err
	}
	before := len(t.r.Tools)
	if err := t.all(list, name); err != nil {
		return err
	}
	if description != "" && len(t.r.Tools) > before {
		first := &t.r.Tools[before]
		first.Description = strings.TrimSuffix(description+"\n\n"+first.Description, "\n\n")
	}
	t.r.Rewrite("flattened_namespace", v.Path(), name)
	return nil
}

func (t *toolbox) add(f body.Fields, tool turn.Tool, namespace string, custom bool) error {
	deferred, err := f.Get("defer_loading").True()
	if err != nil {
		return err
	}
	if deferred {
		t.r.Rewrite("loaded_deferred_tool", f.Path(), tool.Name)
	}
	key := turn.ToolName{Name: tool.Name, Namespace: namespace}
	if _, twice := t.engine[key]; twice {
		return f.Get("name").Invalid("another tool has this name")
	}
	if t.engine == nil {
		t.engine, t.taken = map[turn.ToolName]string{}, map[string]bool{}
	}
	name := flat(namespace, tool.Name)
	for n := 2; t.taken[name]; n++ {
		name = flat(namespace, tool.Name) + "_" + strconv.Itoa(n)
	}
	t.engine[key], t.taken[name] = name, true
	if namespace != "" || custom || name != tool.Name {
		if t.r.Names == nil {
			t.r.Names = turn.Names{}
		}
		t.r.Names[name] = turn.ToolName{Name: tool.Name, Namespace: namespace, Custom: custom}
	}
	tool.Name = name
	t.r.Tools = append(t.r.Tools, tool)
	return nil
}

// name gives the engine's name of a tool. One that is no longer there keeps the name
// that it would have had.
func (t *toolbox) name(namespace, name string) string {
	if known, ok := t.engine[turn.ToolName{Name: name, Namespace: namespace}]; ok {
		return known
	}
	return flat(namespace, name)
}

func flat(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return strings.TrimRight(namespace, "_") + "__" + name
}

func (t *toolbox) choice(r *turn.Request, f body.Fields) error {
	if r.Compact {
		if len(r.Tools) > 0 {
			r.Choice = turn.ToolChoice{Mode: "none"}
		}
		return nil
	}
	return openai.ChoiceForm{Engine: t.name}.Choice(r, f.Get("tool_choice"))
}

// Package settings reads the gateway's configuration file, and says which model of
// the engines a harness gets that asks for one by name. The file is YAML, and read
// strictly: whatever is not understood is an error that names its line.
package settings

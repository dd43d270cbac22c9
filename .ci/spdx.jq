# Spdx turns the output of `go version -m -json` into an SPDX 2.3 document: the program
# and each module that is linked into it.

def id: "SPDXRef-" + gsub("[^A-Za-z0-9.-]"; "-");
def package($name; $version): {
  name: $name, SPDXID: ($name | id), versionInfo: $version, downloadLocation: "NOASSERTION",
  filesAnalyzed: false, licenseConcluded: "NOASSERTION", licenseDeclared: "NOASSERTION", copyrightText: "NOASSERTION"
};
def dependency: (.Replace // .) as $used | package($used.Path; $used.Version) + {
  externalRefs: [{referenceCategory: "PACKAGE-MANAGER", referenceType: "purl", referenceLocator: "pkg:golang/\($used.Path)@\($used.Version)"}],
  comment: "go.sum: \($used.Sum)"
};

(package("locktop"; $version) + {licenseDeclared: "MIT"}) as $program
| (package("go"; .GoVersion) + {comment: "the standard library and the compiler"}) as $go
| [.Deps[] | dependency] as $modules
| {
  spdxVersion: "SPDX-2.3", dataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", name: "locktop \($version)",
  documentNamespace: "https://spdx.org/spdxdocs/locktop-\($version)",
  creationInfo: {created: ($time | todate), creators: ["Tool: go version -m"]},
  packages: [$program, $go, $modules[]],
  relationships: [
    {spdxElementId: "SPDXRef-DOCUMENT", relationshipType: "DESCRIBES", relatedSpdxElement: $program.SPDXID},
    ($go, $modules[] | {spdxElementId: $program.SPDXID, relationshipType: "CONTAINS", relatedSpdxElement: .SPDXID})
  ]
}

{{- define "tidewaiter.image" -}}
{{- $image := .Values.image -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- /* Called with the name of the role. */ -}}
{{- define "tidewaiter.labels" -}}
app.kubernetes.io/name: tidewaiter
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{- define "tidewaiter.monitoringLabels" -}}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidewaiter.pullPolicy" -}}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{- define "tidewaiter.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | toYaml }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* Called with the map `env` of a role. */ -}}
{{- define "tidewaiter.env" -}}
{{- range $name, $value := . }}
- name: {{ $name | toYaml }}
  {{- if kindIs "map" $value }}
  valueFrom:
    secretKeyRef:
      name: {{ $value.secret | toYaml }}
      key: {{ $value.key | toYaml }}
      {{- if $value.optional }}
      optional: true
      {{- end }}
  {{- else }}
  value: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* Called with the values of a role. */ -}}
{{- define "tidewaiter.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Called with (dict "role" NAME "values" VALUES). */ -}}
{{- define "tidewaiter.spread" -}}
topologySpreadConstraints:
  {{- range $key, $unsatisfiable := dict "kubernetes.io/hostname" .values.topologySpread.nodes "topology.kubernetes.io/zone" .values.topologySpread.zones }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: {{ $unsatisfiable }}
    # A node that takes no pod, because it is cordoned or lost, is none over which to spread.
    nodeTaintsPolicy: Honor
    labelSelector:
      matchLabels:
        {{- include "tidewaiter.labels" $.role | nindent 8 }}
    # Only the pods of one version count, so that an update spreads the new ones.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end -}}

{{- define "tidewaiter.checksum" -}}
{{- if .root.Values.restartOnChange }}
annotations:
  checksum/settings: {{ toYaml .settings | sha256sum }}
{{- end }}
{{- end -}}

{{- /* Called with (dict "role" NAME "namespace" NAMESPACE "values" VALUES). */ -}}
{{- define "tidewaiter.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: tidewaiter-{{ .role }}
  namespace: {{ .namespace | toYaml }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "tidewaiter.labels" .role | nindent 6 }}
{{- end -}}

{{- /* Called with (dict "role" NAME "values" VALUES). */ -}}
{{- define "tidewaiter.priorityClass" -}}
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: {{ .values.priorityClass.name | toYaml }}
value: {{ int64 .values.priorityClass.value }}
description: The pods of the {{ .role }} of Tidewaiter.
{{- end -}}

{{- /* Helm would delete the namespace with the release, and with it everything that others created in it. */ -}}
{{- define "tidewaiter.namespace" -}}
apiVersion: v1
kind: Namespace
metadata:
  name: {{ . | toYaml }}
  annotations:
    # Helm keeps the namespace, and what is in it, when the release is uninstalled.
    helm.sh/resource-policy: keep
  labels:
    pod-security.kubernetes.io/enforce: restricted
{{- end -}}

{{- /* The port of an address HOST:PORT. */ -}}
{{- define "tidewaiter.port" -}}
{{- regexFind "[0-9]+$" . -}}
{{- end -}}

{{- /* The binding of an admission policy. Called with (dict "name" NAME "action" ACTION). */ -}}
{{- define "tidewaiter.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
spec:
  policyName: {{ .name }}
  # To try a policy first: [Warn, Audit], or [Audit] alone.
  validationActions: {{ if eq .action "Warn" }}[Warn, Audit]{{ else }}[{{ .action }}]{{ end }}
{{- end -}}

{{- /* Which labels a write changes: variables of a policy on Nodes. Most writes are heartbeats, which change none. */ -}}
{{- define "tidewaiter.changedLabels" -}}
- name: labels
  expression: object.metadata.?labels.orValue({})
- name: before
  expression: "request.operation == 'CREATE' ? {} : oldObject.metadata.?labels.orValue({})"
- name: changed
  expression: >-
    variables.labels == variables.before ? [] :
    variables.labels.filter(k, !(k in variables.before) || variables.before[k] != variables.labels[k]) +
    variables.before.filter(k, !(k in variables.labels))
{{- end -}}

{{- /* Refuses a duration that the role would refuse: `duration.rs` reads the same. Called with (dict "setting" NAME "value" VALUE "least" SECONDS
"most" SECONDS "permitted" WORDS). */ -}}
{{- define "tidewaiter.duration" -}}
{{- $text := .value | toString | trimAll " " }}
{{- $whole := "(?:([0-9]+) *(?:%s))? *" }}
{{- $part := "(?:([0-9]+(?:[.][0-9]{1,9})?) *(?:%s))? *" }}
{{- $pattern := printf "^%s%s%s%s%s%s$"
  (printf $whole "w|wks?|weeks?") (printf $whole "d|days?") (printf $part "h|hrs?|hours?") (printf $part "m|mins?|minutes?")
  (printf $part "s|secs?|seconds?") (printf $part "ms|msecs?|millis?|milliseconds?") }}
{{- /* Only the last number may have a fraction. */ -}}
{{- $read := and $text (regexMatch $pattern $text) (not (regexMatch "[.][0-9]+ *[a-z]+ *[0-9]" $text)) }}
{{- $seconds := 0.0 }}
{{- if $read }}
  {{- $numbers := regexReplaceAll $pattern $text "${1},${2},${3},${4},${5},${6}" | splitList "," }}
  {{- range $place, $factor := list 604800 86400 3600 60 1 0.001 }}
    {{- $seconds = addf $seconds (mulf (index $numbers $place | default "0" | float64) $factor) }}
  {{- end }}
{{- end }}
{{- if not (and (or $read (eq $text "0")) (ge $seconds (float64 .least)) (le $seconds (float64 .most))) }}
  {{- fail (printf "%s is %q: must be a duration with units (w, d, h, m, s or ms), %s" .setting (toString .value) .permitted) }}
{{- end }}
{{- end -}}

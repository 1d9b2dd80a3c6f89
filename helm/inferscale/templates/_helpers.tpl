{{/* The front of every name. */}}
{{- define "inferscale.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "inferscale.control" -}}
{{ include "inferscale.fullname" . }}-control
{{- end -}}

{{/* Labels that select: part is "control", "worker" or "migrations". Arguments: root, part, pool (or empty). */}}
{{- define "inferscale.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- with .pool }}
inferscale/pool: {{ . }}
{{- end }}
{{- end -}}

{{- define "inferscale.labels" -}}
{{ include "inferscale.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "inferscale.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "inferscale.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Arguments: root, image. */}}
{{- define "inferscale.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}

{{/* Settings as variables, INFERSCALE_<SECTION>__<FIELD>. Argument: fields by section. Numbers go
     through JSON, since Helm prints large ones as 2e+09. */}}
{{- define "inferscale.settings" -}}
{{- range $section, $fields := . }}
{{- range $field, $value := $fields }}
{{- if not (kindIs "invalid" $value) }}
- name: INFERSCALE_{{ upper $section }}__{{ upper $field }}
  value: {{ (kindIs "string" $value) | ternary $value ($value | toJson) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* One variable from a secret. Arguments: name, secret, key. */}}
{{- define "inferscale.secretVariable" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ .secret }}
      key: {{ .key }}
{{- end -}}

{{/* A pool's values: those of `worker`, with the pool's own over them. Arguments: root, pool. */}}
{{- define "inferscale.pool" -}}
{{- mergeOverwrite (deepCopy .root.Values.worker) (deepCopy (default (dict) .pool)) | toJson -}}
{{- end -}}

{{/* Whole seconds that Kubernetes waits for a pod: leaving the service, open calls, and 10 s to end. */}}
{{- define "inferscale.terminationSeconds" -}}
{{- add .drainDelaySeconds (ceil (kindIs "invalid" .grace | ternary 20 .grace)) 10 -}}
{{- end -}}

{{- define "inferscale.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "inferscale.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* TLS of one service. Arguments: root, clientsNeedCertificates, healthPort. */}}
{{- define "inferscale.tlsVariables" -}}
- name: INFERSCALE_TLS__CERT_FILE
  value: /tls/tls.crt
- name: INFERSCALE_TLS__KEY_FILE
  value: /tls/tls.key
- name: INFERSCALE_TLS__PEER_CA_FILE
  value: /tls/ca.crt
{{- if .clientsNeedCertificates }}
- name: INFERSCALE_TLS__CLIENT_CA_FILE
  value: /tls/ca.crt
{{- end }}
# The kubelet's probes speak no TLS.
- name: INFERSCALE_TLS__HEALTH_LISTEN
  value: "0.0.0.0:{{ .healthPort }}"
{{- end -}}

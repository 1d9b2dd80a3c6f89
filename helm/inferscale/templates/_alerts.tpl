{{/* Rules over metrics of docs/operations.md, as Prometheus names those that come by OTLP. */}}
{{- define "inferscale.alertGroups" -}}
{{- $by := "by (inferscale_model, inferscale_recipe)" -}}
{{- $who := "{{ $labels.inferscale_recipe }} on {{ $labels.inferscale_model }}" -}}
{{- $task := "{{ $labels.inferscale_task }}" -}}
{{- $done := printf "sum %s (increase(inferscale_shadow_checks_total{inferscale_outcome=~\"agreed|differed\"}[6h]))" $by -}}
{{- $enough := printf "and %s >= %d" $done (int .Values.alerts.shadow.minChecks) -}}
groups:
  - name: inferscale-jobs
    rules:
      - alert: InferScaleJobsParked
        expr: max by (inferscale_task) (inferscale_queue_jobs{inferscale_state="parked"}) > 0
        for: 15m
        labels:
          severity: {{ .Values.alerts.severity }}
        annotations:
          summary: Jobs of {{ $task }} were given up
          description: >-
            {{ "{{ $value }}" }} users wait for a change, or for a worker that joins, to be encoded; until then
            their facts are served as text. See "Watching it" in docs/operations.md.
      - alert: InferScaleJobsFailing
        expr: max by (inferscale_task) (inferscale_queue_jobs{inferscale_state="failing"}) > 0
        for: 1h
        labels:
          severity: {{ .Values.alerts.severity }}
        annotations:
          summary: Jobs of {{ $task }} have been failing for an hour
          description: >-
            {{ "{{ $value }}" }} jobs wait for another attempt. See "Watching it" in docs/operations.md.
  {{- if include "inferscale.isSampled" . }}
  - name: inferscale-shadow
    rules:
      - alert: InferScaleShadowDivergence
        expr: |-
          sum {{ $by }} (increase(inferscale_shadow_kl_sum[6h]))
          / sum {{ $by }} (increase(inferscale_shadow_kl_count[6h]))
          > {{ .Values.alerts.shadow.maxDivergence }}
          {{ $enough }}
        for: 30m
        labels:
          severity: {{ .Values.alerts.severity }}
        annotations:
          summary: Injected answers of {{ $who }} are far from joint prefill
          description: >-
            The first token diverged by {{ "{{ $value | humanize }}" }} nats on average over 6 hours; the limit is
            {{ .Values.alerts.shadow.maxDivergence }}. See "Shadow checks" in docs/operations.md.
      - alert: InferScaleShadowDisagreement
        expr: |-
          1 - sum {{ $by }} (increase(inferscale_shadow_checks_total{inferscale_outcome="differed"}[6h]))
          / {{ $done }}
          < {{ .Values.alerts.shadow.minAgreement }}
          {{ $enough }}
        for: 30m
        labels:
          severity: {{ .Values.alerts.severity }}
        annotations:
          summary: Injected answers of {{ $who }} begin otherwise than joint prefill
          description: >-
            The likeliest first token was the same in {{ "{{ $value | humanizePercentage }}" }} of the checks of 6 hours;
            the limit is {{ .Values.alerts.shadow.minAgreement }}. See "Shadow checks" in docs/operations.md.
      - alert: InferScaleShadowStalled
        expr: |-
          sum {{ $by }} (increase(inferscale_shadow_checks_total[6h])) > 0
          unless {{ $done }} > 0
        for: 6h
        labels:
          severity: info
        annotations:
          summary: Chats of {{ $who }} are sampled and none was checked
          description: >-
            Workers are never idle for long enough, or checks fail. See "Shadow checks" in docs/operations.md.
  {{- end }}
{{- end -}}

{{/* Whether any pool has its chats checked: "true" or nothing. */}}
{{- define "inferscale.isSampled" -}}
{{- $found := false -}}
{{- range $name, $pool := .Values.workerPools -}}
{{- $worker := include "inferscale.pool" (dict "root" $ "pool" $pool) | fromJson -}}
{{- if gt (float64 (default 0 $worker.settings.worker.shadow_share)) 0.0 }}{{ $found = true }}{{ end -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end -}}

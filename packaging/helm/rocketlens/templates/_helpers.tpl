{{- define "rocketlens.labels" -}}
app.kubernetes.io/name: rocketlens
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rocketlens.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "rocketlens.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "rocketlens.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* Of the port that is given. A start ends when `started` answers. */}}
{{- define "rocketlens.probes" -}}
startupProbe:
  httpGet: {path: {{ .started | default "/readyz" }}, port: {{ .port }}}
  periodSeconds: 5
  failureThreshold: 120
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}}
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "rocketlens.scratch" -}}
- {name: tmp, emptyDir: {}}
{{- end }}

{{- define "rocketlens.scratchMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "foreshock.selector" -}}
app.kubernetes.io/name: foreshock
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "foreshock.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "foreshock.selector" . | nindent 2 }}
{{- end }}

{{- define "foreshock.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "foreshock.pull" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "foreshock.place" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "foreshock.pod-security" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532   # may read the secrets, others may not
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "foreshock.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "foreshock.url" -}}
https://{{ .Release.Name }}.{{ .Release.Namespace }}.svc:10870
{{- end }}

{{- define "foreshock.sign-in" -}}
{{- dig "dashboard" "sign_in" "none" .Values.config -}}
{{- end }}

{{- define "foreshock.config" -}}
{{- $tls := dict "certificate" "/run/secrets/foreshock-tls/tls.crt" "key" "/run/secrets/foreshock-tls/tls.key" -}}
{{- if .Values.tls.clients -}}
{{- /* kubelets show no certificate to what they probe: `required` would let no server become ready */ -}}
{{- $tls = merge $tls (dict "client_ca" "/run/secrets/foreshock-clients/ca.crt" "client" "optional") -}}
{{- end -}}
{{- $config := mustMergeOverwrite (dict "tls" $tls) (deepCopy .Values.config) -}}
{{- with .Values.dashboard -}}
{{- if and .enabled .tokenSha256 -}}
{{- $scopes := list "read" "act" -}}
{{- if eq (include "foreshock.sign-in" $) "proxy" }}{{ $scopes = append $scopes "on_behalf" }}{{ end -}}
{{- $token := dict "name" "dashboard" "sha256" .tokenSha256 "scopes" $scopes -}}
{{- $_ := set $config "tokens" (append ($config.tokens | default list) $token) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{- define "foreshock.database" -}}
- name: {{ if .Values.database.sqlite.enabled }}FORESHOCK_DB{{ else }}FORESHOCK_DB_FILE{{ end }}
  value: {{ if .Values.database.sqlite.enabled }}sqlite:////var/lib/foreshock/foreshock.db{{ else }}/run/secrets/foreshock-database/url{{ end }}
{{- end }}

{{- define "foreshock.database-mount" -}}
{{- if .Values.database.sqlite.enabled -}}
- {name: database, mountPath: /var/lib/foreshock}
{{- else -}}
- {name: database, mountPath: /run/secrets/foreshock-database, readOnly: true}
{{- end }}
{{- end }}

{{- define "foreshock.database-volume" -}}
- name: database
{{- if .Values.database.sqlite.enabled }}
  persistentVolumeClaim: {claimName: {{ .Release.Name }}-database}
{{- else }}
  secret: {secretName: {{ .Values.database.secret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "foreshock.secret-mounts" -}}
{{- range $number, $name := . }}
- {name: secret-{{ $number }}, mountPath: /run/secrets/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}

{{- define "foreshock.secret-volumes" -}}
{{- range $number, $name := . }}
- name: secret-{{ $number }}
  secret: {secretName: {{ $name }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "foreshock.config-mounts" -}}
{{- if .Values.tls.clients }}
- {name: clients, mountPath: /run/secrets/foreshock-clients, readOnly: true}
{{- end }}
{{- include "foreshock.secret-mounts" .Values.secrets }}
{{- end }}

{{- define "foreshock.config-volumes" -}}
{{- with .Values.tls.clients }}
- name: clients
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- include "foreshock.secret-volumes" .Values.secrets }}
{{- end }}

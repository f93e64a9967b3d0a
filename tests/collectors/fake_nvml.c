/* A stand-in for libnvidia-ml.so.1: what a script says, for the tests of a machine without a GPU.
 * $FAKE_NVML names a file of lines `KEY VALUE`, read anew at each call: `count 2`, `0.temp 61`, `1.lost 1`,
 * `0.link3.2 7` (GPU 0, link 3, counter 2), `xid1 0:79` (the first Xid: GPU 0, code 79; each is told once).
 * A key that is not there is "not supported". Layouts as in nvml.h.
 * Where $FAKE_NVML_ONCE is set, the file is read once, and what was asked before is remembered: a benchmark is not of
 * this file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef unsigned int u;
typedef unsigned long long ull;
enum { OK = 0, NOT_SUPPORTED = 3, NO_DRIVER = 9, TIMEOUT = 10, NOT_FOUND = 13, LOST = 15 };
static char handles[64];
static ull told = 0;

static struct entry { char key[32]; double value; } table[512];
static int known = -1;

static int look_once(const char *key, double *value) {
    if (known < 0) {
        FILE *file = fopen(getenv("FAKE_NVML"), "r");
        for (known = 0; file && known < 512 && fscanf(file, "%31s %lf", table[known].key, &table[known].value) == 2; known++);
        if (file) fclose(file);
    }
    for (int at = 0; at < known; at++)
        if (!strcmp(table[at].key, key)) {
            if (value) *value = table[at].value;
            return 1;
        }
    return 0;
}
static const char *getenv_once(void) {
    static const char *once = "";
    if (once && !*once) once = getenv("FAKE_NVML_ONCE");
    return once;
}
static int look(const char *key, double *value, char *text) {
    if (getenv_once()) return look_once(key, value);
    char line[256], name[128], rest[128];
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %127s", name, rest) == 2 && !strcmp(name, key)) {
            if (value) *value = atof(rest);
            if (text) strcpy(text, rest);
            found = 1;
        }
    fclose(file);
    return found;
}
static int of(const char *gpu, const char *what, double *value) {
    char key[128];
    snprintf(key, sizeof key, "%d.lost", (int)(gpu - handles));
    if (look(key, NULL, NULL)) return LOST;
    snprintf(key, sizeof key, "%d.%s", (int)(gpu - handles), what);
    return look(key, value, NULL) ? OK : NOT_SUPPORTED;
}
/* The same for a WHAT that is a literal: what was asked once is known by its address. */
static int of_literal(const char *gpu, const char *what, double *value) {
    static struct { const char *gpu, *what; double value; int status; } known[256];
    if (!getenv_once()) return of(gpu, what, value);
    size_t at = ((size_t)what / 4 * 31 + (size_t)(gpu - handles)) % 256;
    if (known[at].what != what || known[at].gpu != gpu) {
        known[at].what = what; known[at].gpu = gpu;
        known[at].status = of(gpu, what, &known[at].value);
    }
    *value = known[at].value;
    return known[at].status;
}
#define U(NAME, KEY) int NAME(const char *gpu, u *out) { double v; int r = of_literal(gpu, KEY, &v); if (!r) *out = (u)v; return r; }

int nvmlInitWithFlags(u flags) { (void)flags; return look("no_driver", NULL, NULL) ? NO_DRIVER : OK; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(u *out) { double v; if (!look("count", &v, NULL)) return NO_DRIVER; *out = (u)v; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u index, const char **out) { double v; int r = of(handles + index, "lost", &v); *out = handles + index; return r == LOST ? LOST : OK; }
int nvmlDeviceGetUUID(const char *gpu, char *out, u size) { snprintf(out, size, "GPU-%d", (int)(gpu - handles)); return OK; }
struct pci { char legacy[16]; u domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(const char *gpu, struct pci *out) { memset(out, 0, sizeof *out); snprintf(out->bus_id, 32, "00000000:%02X:00.0", (int)(gpu - handles) + 15); return OK; }
int nvmlDeviceGetTemperature(const char *gpu, int sensor, u *out) { double v; int r = of(gpu, "temp", &v); (void)sensor; if (!r) *out = (u)v; return r; }
U(nvmlDeviceGetPowerUsage, "power_mw")
U(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")
U(nvmlDeviceGetPcieReplayCounter, "pcie_replay")
U(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_gen")
U(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
int nvmlDeviceGetUtilizationRates(const char *gpu, u out[2]) { double v; int r = of(gpu, "util", &v); if (!r) { out[0] = (u)v; out[1] = 0; } return r; }
int nvmlDeviceGetMemoryInfo(const char *gpu, ull out[3]) { double v; int r = of(gpu, "memory_used", &v); if (!r) { out[0] = 100; out[1] = 100 - (ull)v; out[2] = (ull)v; } return r; }
struct memory { u version; ull total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(const char *gpu, struct memory *out) {
    double used, total = 100, reserved = 0;
    int r = look("old_driver", NULL, NULL) ? NOT_FOUND : of(gpu, "memory_used", &used);
    if (r) return r;
    of(gpu, "memory_total", &total); of(gpu, "memory_reserved", &reserved);
    out->total = (ull)total; out->reserved = (ull)reserved; out->used = (ull)used;
    out->free = out->total - out->reserved - out->used;
    return OK;
}
int nvmlDeviceGetClockInfo(const char *gpu, int type, u *out) { double v; int r = of_literal(gpu, type == 1 ? "sm_clock" : "memory_clock", &v); if (!r) *out = (u)v; return r; }
int nvmlDeviceGetCurrentClocksThrottleReasons(const char *gpu, ull *out) { double v; int r = of_literal(gpu, "throttle", &v); if (!r) *out = (ull)v; return r; }
int nvmlDeviceGetTotalEccErrors(const char *gpu, int type, int counter, ull *out) { char key[32]; double v; int r; snprintf(key, sizeof key, "ecc%d%d", type, counter); r = of(gpu, key, &v); if (!r) *out = (ull)v; return r; }
int nvmlDeviceGetRetiredPages(const char *gpu, int cause, u *count, ull *pages) { char key[32]; double v; int r; snprintf(key, sizeof key, "retired%d", cause); r = of(gpu, key, &v); if (!r) { *count = (u)v; if (pages) memset(pages, 0, (size_t)v * sizeof *pages); } return r; }
int nvmlDeviceGetViolationStatus(const char *gpu, int policy, ull out[2]) { char key[32]; double v; int r; snprintf(key, sizeof key, "violation%d", policy); r = of(gpu, key, &v); if (!r) { out[0] = 1; out[1] = (ull)v; } return r; }
int nvmlDeviceGetRemappedRows(const char *gpu, u *a, u *b, u *c, u *d) { double v, w; int r = of(gpu, "remapped", &v); if (!r) { w = v + 1; of(gpu, "remapped_uncorrectable", &w); *a = (u)v; *b = (u)w; *c = 0; *d = 0; } return r; }
int nvmlDeviceGetNvLinkState(const char *gpu, u link, u *out) { char key[32]; double v; int r; snprintf(key, sizeof key, "link%u", link); r = of(gpu, key, &v); if (!r) *out = (u)v; return r; }
int nvmlDeviceGetNvLinkErrorCounter(const char *gpu, u link, int counter, ull *out) { char key[32]; double v; int r; snprintf(key, sizeof key, "link%u.%d", link, counter); r = of(gpu, key, &v); if (!r) *out = (ull)v; return r; }
struct fabric { u version; unsigned char cluster[16]; u status, clique, state, mask; };
int nvmlDeviceGetGpuFabricInfoV(const char *gpu, struct fabric *out) { double v; int r = of(gpu, "fabric", &v); if (!r) { out->state = (u)v; out->mask = 2; } return r; }
struct field { u id, scope; long long time, latency; u type, status; double value; };
int nvmlDeviceGetFieldValues(const char *gpu, int count, struct field *out) {
    for (int i = 0; i < count; i++) {
        char key[32]; double v = 0;
        if (out[i].scope) snprintf(key, sizeof key, "field%u.%u", out[i].id, out[i].scope);
        else snprintf(key, sizeof key, "field%u", out[i].id);
        out[i].status = (u)of(gpu, key, &v); out[i].type = 0; out[i].value = v;
        if (out[i].status == LOST) return LOST;
    }
    return OK;
}
int nvmlEventSetCreate(void **out) { static int set; *out = &set; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(const char *gpu, ull types, void *set) { (void)gpu; (void)types; (void)set; return look("no_events", NULL, NULL) ? NOT_SUPPORTED : OK; }
struct event { const char *device; ull type, data; u gi, ci; };
int nvmlEventSetWait_v2(void *set, struct event *out, u timeout_ms) {
    (void)set;
    for (u waited = 0; ; waited += 2) {
        char key[32], text[128]; u gpu, code;
        snprintf(key, sizeof key, "xid%llu", told + 1);
        if (look(key, NULL, text) && sscanf(text, "%u:%u", &gpu, &code) == 2) {
            told++;
            memset(out, 0, sizeof *out); out->device = handles + gpu; out->type = 8; out->data = code;
            return OK;
        }
        if (look("event_error", NULL, NULL)) return 999;
        if (waited >= timeout_ms) return TIMEOUT;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

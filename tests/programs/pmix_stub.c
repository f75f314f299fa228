/* A library that answers as PMIx does, for a job of one process. STUB says what is wrong: old, refuse, other, big. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char nspace[256]; uint32_t rank; } process;
typedef struct { uint16_t type; union { uint8_t flag; uint16_t uint16; uint32_t uint32; char *string; uint64_t room[3]; } data; } value;
typedef struct { char key[512]; uint32_t flags; value value; } info;
enum { STRING = 3, UINT16 = 13, UINT32 = 14, NOT_FOUND = -46, UNREACH = -25 };

static struct { char *key, *text; int is_committed, is_visible; } stored[1000];
static int count;

static int is(const char *what) {
    const char *stub = getenv("STUB");
    return stub && !strcmp(stub, what);
}

const char *PMIx_Get_version(void) { return is("old") ? "PMIx 1.2.5" : "OpenPMIx 4.2.2, a stub"; }
const char *PMIx_Error_string(int status) { return status == UNREACH ? "UNREACHABLE" : "ERROR"; }

int PMIx_Init(process *proc, info *infos, size_t ninfo) {
    (void)infos, (void)ninfo;
    if (is("refuse")) return UNREACH;
    memset(proc, 0, sizeof *proc);
    strcpy(proc->nspace, is("other") ? "singleton.1" : getenv("PMIX_NAMESPACE"));
    proc->rank = (uint32_t)atoi(getenv("PMIX_RANK"));
    return 0;
}

int PMIx_Put(uint8_t scope, const char *key, value *it) {
    if (scope != 3 || it->type != STRING || count == 1000) return -1;
    stored[count].key = strdup(key);
    stored[count++].text = strdup(it->data.string);
    return 0;
}

int PMIx_Commit(void) {
    for (int i = 0; i < count; i++) stored[i].is_committed = 1;
    return 0;
}

int PMIx_Fence(const process *procs, size_t nprocs, const info *infos, size_t ninfo) {
    if (procs || nprocs || ninfo != 1 || strcmp(infos->key, "pmix.collect") || infos->value.type != 1 || !infos->value.data.flag) return -1;
    for (int i = 0; i < count; i++) stored[i].is_visible = stored[i].is_committed;
    return 0;
}

int PMIx_Get(const process *proc, const char *key, const info *infos, size_t ninfo, value **found) {
    if (ninfo != 1 || strcmp(infos->key, "pmix.immediate") || strcmp(proc->nspace, getenv("PMIX_NAMESPACE"))) return -1;
    value *it = calloc(1, sizeof *it);
    *found = it;
    if (proc->rank == UINT32_MAX - 1) {
        it->type = UINT32;
        it->data.uint32 = is("big") ? 0 : 1;
        if (!strcmp(key, "pmix.job.size") || !strcmp(key, "pmix.univ.size") || !strcmp(key, "pmix.local.size")) return 0;
    }
    if (!strcmp(key, "pmix.lrank")) {
        it->type = UINT16;
        return 0;
    }
    for (int i = count; i-- > 0;) {
        if (proc->rank == 0 && stored[i].is_visible && !strcmp(stored[i].key, key)) {
            it->type = STRING;
            it->data.string = strdup(stored[i].text);
            return 0;
        }
    }
    free(it);
    *found = NULL;
    return NOT_FOUND;
}

int PMIx_Finalize(const info *infos, size_t ninfo) {
    (void)infos, (void)ninfo;
    fprintf(stderr, "stub: finalized\n");
    return 0;
}

int PMIx_Abort(int status, const char *text, process *procs, size_t nprocs) {
    (void)text, (void)procs, (void)nprocs;
    fprintf(stderr, "stub: aborted with %d\n", status);
    exit(status);
}

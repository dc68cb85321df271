/* A libnvidia-ml.so.1 of our own: the part of NVML that the agent asks, answered from a text file.
 *
 * The file is named by NVML_MACHINE and read again at every call, so that a test can change the
 * machine under a running agent. Each line is one thing that there is:
 *
 *     driver 550.54.15                     without it, none is loaded
 *     gpu GPU-a 16384 512 40 Tesla T4      uuid, MiB in all, MiB reserved, per cent busy, name
 *     process 0 4711 3000 35               on this GPU, this pid, MiB (-1: NVML cannot tell), and
 *                                          per cent of the time (-1: it has no sample)
 *     used 0 200                           MiB in use there that no process accounts for
 *     lost 0                               this GPU has fallen off the bus
 *     xid 0 79                             an error of this GPU; reported once, to listeners
 *     hang                                 all calls hang until this line is gone
 *     mortal                               a process that has ended uses nothing, as it really is
 *
 * What a driver older than 510 does not have is not found here either. See NVML's reference:
 * https://docs.nvidia.com/deploy/nvml-api/
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_FOUND = 6, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED = 9,
       TIMEOUT, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15, VERSION_MISMATCH = 25 };
enum { CARDS_MAX = 16, PROCESSES_MAX = 512, XIDS_MAX = 64, POLL_MS = 10 };
#define MIB (1024ULL * 1024ULL)
#define MEMORY_V2 0x02000028U
#define XID_CRITICAL_ERROR 8ULL

typedef struct { char uuid[96], name[96]; long total, reserved, extra; unsigned busy; int lost; } Card;
typedef struct { unsigned card, pid; long mib; int busy; } Process;
typedef struct { unsigned card, number; } Xid;
typedef struct {
    int driver, cards, processes, xids; /* driver: its major version, 0: none */
    int hangs, mortal;
    Card card[CARDS_MAX];
    Process process[PROCESSES_MAX];
    Xid xid[XIDS_MAX];
} Machine;

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory_v2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } ProcessInfo;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, enc, dec; } Sample;
typedef struct { unsigned long card; unsigned long long type, data; unsigned instance, compute; } Event;
typedef struct { int told; int registered[CARDS_MAX]; } EventSet; /* told: as many of the xids */

static int users; /* calls of init that no shutdown has followed */

static void line(Machine *m, const char *text)
{
    Card c = {0};
    Process p = {.busy = -1};
    Xid x;
    unsigned card;
    long mib;

    if (sscanf(text, "driver %d", &m->driver) == 1)
        return;
    if (!strncmp(text, "hang", 4))
        m->hangs = 1;
    if (!strncmp(text, "mortal", 6))
        m->mortal = 1;
    if (m->cards < CARDS_MAX && sscanf(text, "gpu %95s %ld %ld %u %95[^\n]", c.uuid, &c.total,
                                       &c.reserved, &c.busy, c.name) == 5)
        m->card[m->cards++] = c;
    else if (m->processes < PROCESSES_MAX &&
             sscanf(text, "process %u %u %ld %d", &p.card, &p.pid, &p.mib, &p.busy) >= 3)
        m->process[m->processes++] = p;
    else if (m->xids < XIDS_MAX && sscanf(text, "xid %u %u", &x.card, &x.number) == 2)
        m->xid[m->xids++] = x;
    else if (sscanf(text, "used %u %ld", &card, &mib) == 2 && card < CARDS_MAX)
        m->card[card].extra = mib;
    else if (sscanf(text, "lost %u", &card) == 1 && card < CARDS_MAX)
        m->card[card].lost = 1;
}

/* Of one that has ended the driver has taken back all, though its parent has not asked yet. */
static int ended(const Process *p)
{
    char path[32], state = 'Z';
    FILE *file;

    snprintf(path, sizeof path, "/proc/%u/stat", p->pid);
    if (!(file = fopen(path, "r")))
        return 1;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
        state = 'Z';
    fclose(file);
    return state == 'Z' || state == 'X';
}

static void bury(Machine *m)
{
    int left = 0;

    for (int i = 0; i < m->processes; i++)
        if (!ended(&m->process[i]))
            m->process[left++] = m->process[i];
    m->processes = left;
}

static void read_machine(Machine *m)
{
    const char *path = getenv("NVML_MACHINE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char text[512];

    memset(m, 0, sizeof *m);
    if (!file)
        return;
    while (fgets(text, sizeof text, file))
        line(m, text);
    fclose(file);
    if (m->mortal)
        bury(m);
}

static void look(Machine *m)
{
    for (read_machine(m); m->hangs; read_machine(m))
        usleep(POLL_MS * 1000);
}

/* A handle is the index of a GPU plus 1. */
static int find(unsigned long handle, Machine *m, Card **card)
{
    if (!users)
        return UNINITIALIZED;
    look(m);
    if (!m->driver)
        return DRIVER_NOT_LOADED;
    if (handle < 1 || handle > (unsigned long)m->cards)
        return INVALID_ARGUMENT;
    *card = &m->card[handle - 1];
    return (*card)->lost ? GPU_IS_LOST : OK;
}

static long used_mib(const Machine *m, unsigned card)
{
    long mib = m->card[card].extra;

    for (int i = 0; i < m->processes; i++)
        if (m->process[i].card == card && m->process[i].mib > 0)
            mib += m->process[i].mib;
    return mib;
}

int nvmlInitWithFlags(unsigned flags)
{
    Machine m;

    (void)flags;
    look(&m);
    if (!m.driver)
        return DRIVER_NOT_LOADED;
    users++;
    return OK;
}

int nvmlShutdown(void)
{
    if (!users)
        return UNINITIALIZED;
    users--;
    return OK;
}

const char *nvmlErrorString(int code)
{
    return code == GPU_IS_LOST ? "GPU is lost" : code == DRIVER_NOT_LOADED ? "Driver Not Loaded"
                                                                           : "error of the shim";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    Machine m;

    if (!users)
        return UNINITIALIZED;
    look(&m);
    *count = (unsigned)m.cards;
    return m.driver ? OK : DRIVER_NOT_LOADED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, unsigned long *handle)
{
    Machine m;
    Card *card;

    *handle = index + 1UL;
    return find(*handle, &m, &card);
}

static int text_of(const char *text, char *to, unsigned length)
{
    if (strlen(text) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return OK;
}

int nvmlDeviceGetUUID(unsigned long handle, char *uuid, unsigned length)
{
    Machine m;
    Card *card;
    int code = find(handle, &m, &card);

    return code ? code : text_of(card->uuid, uuid, length);
}

int nvmlDeviceGetName(unsigned long handle, char *name, unsigned length)
{
    Machine m;
    Card *card;
    int code = find(handle, &m, &card);

    return code ? code : text_of(card->name, name, length);
}

int nvmlDeviceGetMemoryInfo(unsigned long handle, Memory *memory)
{
    Machine m;
    Card *card;
    int code = find(handle, &m, &card);

    if (code)
        return code;
    memory->total = (unsigned long long)card->total * MIB;
    memory->used = (unsigned long long)(card->reserved + used_mib(&m, (unsigned)handle - 1)) * MIB;
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetMemoryInfo_v2(unsigned long handle, Memory_v2 *memory)
{
    Machine m;
    Card *card;
    int code = find(handle, &m, &card);

    if (code)
        return code;
    if (m.driver < 510)
        return FUNCTION_NOT_FOUND;
    if (memory->version != MEMORY_V2)
        return VERSION_MISMATCH;
    memory->total = (unsigned long long)card->total * MIB;
    memory->reserved = (unsigned long long)card->reserved * MIB;
    memory->used = (unsigned long long)used_mib(&m, (unsigned)handle - 1) * MIB;
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}

int nvmlDeviceGetUtilizationRates(unsigned long handle, Utilization *busy)
{
    Machine m;
    Card *card;
    int code = find(handle, &m, &card);

    if (code)
        return code;
    busy->gpu = card->busy;
    busy->memory = 0;
    return OK;
}

static int processes(unsigned long handle, int since, unsigned *count, ProcessInfo *to)
{
    Machine m;
    Card *card;
    unsigned room = *count, found = 0;
    int code = find(handle, &m, &card);

    if (code)
        return code;
    if (m.driver < since)
        return FUNCTION_NOT_FOUND;
    for (int i = 0; i < m.processes; i++) {
        const Process *p = &m.process[i];
        if (p->card + 1UL != handle)
            continue;
        if (to && found < room)
            to[found] = (ProcessInfo){p->pid, p->mib < 0 ? ~0ULL : p->mib * MIB, ~0U, ~0U};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(unsigned long handle, unsigned *count, ProcessInfo *to)
{
    return processes(handle, 510, count, to);
}

int nvmlDeviceGetComputeRunningProcesses_v2(unsigned long handle, unsigned *count, ProcessInfo *to)
{
    return processes(handle, 450, count, to);
}

/* Of each process the newest sample, and one before it that counts no more. */
int nvmlDeviceGetProcessUtilization(unsigned long handle, Sample *to, unsigned *count,
                                    unsigned long long since)
{
    Machine m;
    Card *card;
    unsigned room = *count, found = 0;
    int code = find(handle, &m, &card);

    if (code)
        return code;
    for (int i = 0; i < m.processes; i++) {
        const Process *p = &m.process[i];
        if (p->card + 1UL != handle || p->busy < 0)
            continue;
        for (int older = 0; older < 2; older++, found++)
            if (to && found < room)
                to[found] = (Sample){p->pid, since + 2 - older, older ? 99 : (unsigned)p->busy, 0, 0, 0};
    }
    *count = found;
    return !found ? NOT_FOUND : found > room ? INSUFFICIENT_SIZE : OK;
}

int nvmlEventSetCreate(EventSet **set)
{
    Machine m;

    if (!users)
        return UNINITIALIZED;
    look(&m);
    *set = calloc(1, sizeof **set);
    (*set)->told = m.xids; /* earlier errors are not reported */
    return OK;
}

int nvmlDeviceRegisterEvents(unsigned long handle, unsigned long long types, EventSet *set)
{
    Machine m;
    Card *card;
    int code = find(handle, &m, &card);

    if (code)
        return code;
    set->registered[handle - 1] = (types & XID_CRITICAL_ERROR) != 0;
    return OK;
}

int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned timeout_ms)
{
    for (unsigned waited = 0;; waited += POLL_MS) {
        Machine m;

        look(&m);
        while (set->told < m.xids) {
            Xid x = m.xid[set->told++];
            if (x.card < CARDS_MAX && set->registered[x.card]) {
                *event = (Event){x.card + 1UL, XID_CRITICAL_ERROR, x.number, ~0U, ~0U};
                return OK;
            }
        }
        if (waited >= timeout_ms)
            return TIMEOUT;
        usleep(POLL_MS * 1000);
    }
}

int nvmlEventSetFree(EventSet *set)
{
    free(set);
    return OK;
}

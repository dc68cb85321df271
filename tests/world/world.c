/* A worse machine, for one process and those that it starts (LD_PRELOAD):

   WORLD_CLOCK     a file with a double: by how many seconds the wall clock is set forward
   WORLD_FSYNC_MS  how long it takes until something is on disk
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile double *ahead;
static long fsync_ms;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("WORLD_CLOCK"), *ms = getenv("WORLD_FSYNC_MS");
    fsync_ms = ms ? atol(ms) : 0;
    if (path) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        void *map = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
        if (file < 0 || map == MAP_FAILED)
            abort();
        ahead = map;
        close(file);
    }
}

static int read_clock(clockid_t id, struct timespec *at)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    return real(id, at);
}

int clock_gettime(clockid_t id, struct timespec *at)
{
    int failed = read_clock(id, at);
    if (!failed && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        at->tv_sec += lround(*ahead);
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at)
        *at = now.tv_sec;
    return now.tv_sec;
}

static int sync_slowly(const char *name, int file)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, name);
    usleep(fsync_ms * 1000);
    return real(file);
}

int fsync(int file) { return sync_slowly("fsync", file); }

int fdatasync(int file) { return sync_slowly("fdatasync", file); }

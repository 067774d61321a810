/* Calls that fail on files of one name, for LD_PRELOAD. They are set by environment variables:

   FAULT_CALLS   which: words of "write sync truncate close rename"
   FAULT_ERRNO   the number of the error
   FAULT_PATH    what is in the names of the files
   FAULT_RANK    the rank on which they fail; on all if empty
   FAULT_SKIP    how many such calls succeed before */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails_at(const char *path, const char *call)
{
    static int seen = 0;
    const char *calls = getenv("FAULT_CALLS"), *on = getenv("FAULT_RANK");
    const char *rank = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");

    if (calls == NULL) {
        seen = 0;
        return 0;
    }
    if (strstr(calls, call) == NULL || strstr(path, getenv("FAULT_PATH")) == NULL)
        return 0;
    if (*on != 0 && (rank == NULL || strcmp(rank, on) != 0))
        return 0;
    if (seen++ < atoi(getenv("FAULT_SKIP")))
        return 0;
    errno = atoi(getenv("FAULT_ERRNO"));
    return 1;
}

static int fails(int file, const char *call)
{
    char link[64], path[4096];
    ssize_t length;
    int before = errno;

    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails_at(path, call);
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t count)
{
    return fails(file, "write") ? -1 : REAL(ssize_t, write, int, const void *, size_t)(file, data, count);
}

ssize_t pwrite(int file, const void *data, size_t count, off_t at)
{
    return fails(file, "write") ? -1
        : REAL(ssize_t, pwrite, int, const void *, size_t, off_t)(file, data, count, at);
}

ssize_t pwrite64(int file, const void *data, size_t count, off64_t at)
{
    return fails(file, "write") ? -1
        : REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t)(file, data, count, at);
}

int fsync(int file)
{
    return fails(file, "sync") ? -1 : REAL(int, fsync, int)(file);
}

int syncfs(int file)
{
    return fails(file, "sync") ? -1 : REAL(int, syncfs, int)(file);
}

int ftruncate(int file, off_t length)
{
    return fails(file, "truncate") ? -1 : REAL(int, ftruncate, int, off_t)(file, length);
}

int ftruncate64(int file, off64_t length)
{
    return fails(file, "truncate") ? -1 : REAL(int, ftruncate64, int, off64_t)(file, length);
}

int rename(const char *old, const char *new)
{
    return fails_at(old, "rename") ? -1 : REAL(int, rename, const char *, const char *)(old, new);
}

int close(int file)
{
    int failed = fails(file, "close"), number = errno, status = REAL(int, close, int)(file);

    if (failed) {
        errno = number;
        return -1;
    }
    return status;
}

/* NVIDIA's management library as far as we ask it: two GPUs, of which the second does not measure its power. */
#include <stdio.h>

#define SUCCESS 0
#define NOT_SUPPORTED 3

typedef struct {
    unsigned long long total, free, used;
} memory;

static int numbers[2] = {0, 1};

int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }

int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &numbers[index]; return SUCCESS; }

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    snprintf(name, length, "Fake GPU %d", *(int *)device);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *info) {
    info->total = 1000 + *(int *)device;
    info->free = 100;
    info->used = info->total - info->free;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    *milliwatts = 71500;
    return *(int *)device ? NOT_SUPPORTED : SUCCESS;
}

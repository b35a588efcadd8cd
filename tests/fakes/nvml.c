/* NVIDIA's management library as far as we ask it: three GPUs: the second does not measure its power, the third has no memory of its own. */
#include <stdio.h>

#define SUCCESS 0
#define NOT_SUPPORTED 3

typedef struct {
    unsigned long long total, free, used;
} memory;

static int numbers[3] = {0, 1, 2};

int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }

int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &numbers[index]; return SUCCESS; }

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    snprintf(name, length, "Fake GPU %d", *(int *)device);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory *info) {
    info->total = 1000 + *(int *)device;
    info->free = 100;
    info->used = info->total - info->free;
    return *(int *)device == 2 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    *milliwatts = 71500;
    return *(int *)device == 1 ? NOT_SUPPORTED : SUCCESS;
}

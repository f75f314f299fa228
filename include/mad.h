/* The native interface: messages packed and unpacked piece by piece, beside MPI or without it.
   Madeleine's interface, after E. Brunet, INRIA RR-5641 (2005), sections 2.3 and 3.

   Functions return 0 or the code of what is wrong; mad_last_error() says it in one line. A call that
   fails changes nothing, unless it is said here. Programs link libmpi_abi (pkg-config canele-mad, or
   mpicc) and may use any number of threads; one message is used by one thread at a time. */
#ifndef MAD_H
#define MAD_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mad_channel *mad_channel_t;
typedef struct mad_connection *mad_connection_t;

/* When the memory of a packet is read. Both sides give the same constraints for the same packet. */
enum {
    mad_send_SAFER = 0x1,  /* before mad_pack returns: it may change at once */
    mad_send_LATER = 0x2,  /* in mad_end_packing: what is there then is sent */
    mad_send_CHEAPER = 0x3 /* at any time until mad_end_packing returns: until then it must not change */
};

/* When the receiver has the data of a packet. */
enum {
    mad_receive_EXPRESS = 0x10, /* when mad_unpack returns */
    mad_receive_CHEAPER = 0x20  /* when mad_end_unpacking returns */
};

/* What the caller does next, for mad_pack and mad_unpack. It changes how soon data leave, and nothing
   else, even where it does not come true. What was packed leaves too when a mad_ function has to wait. */
enum {
    MAD_NEXT_UNKNOWN = 0,      /* short packets wait for company, a long one for the next call on its message */
    MAD_NEXT_COMPUTING = 0x100 /* no more of this message for a while: what was packed leaves */
};
/* Another packet of this message at once, with these constraints: long packets wait for more than that. */
#define MAD_NEXT_PACKET(send, receive) ((send) | (receive))

enum {
    MAD_SUCCESS = 0,
    MAD_ERR_STATE = 1,       /* not initialised, or finalised */
    MAD_ERR_ARGUMENT = 2,    /* a null pointer, or no such constraint */
    MAD_ERR_RANK = 3,        /* no such process */
    MAD_ERR_CHANNEL = 4,     /* a channel that is not open, or open already */
    MAD_ERR_HANDLE = 5,      /* no handle, or one of what was ended or closed */
    MAD_ERR_OPEN = 6,        /* a message is open that has to be ended first */
    MAD_ERR_BUSY = 7,        /* another thread uses the message */
    MAD_ERR_SIZE = 8,        /* the packet has another length */
    MAD_ERR_CONSTRAINTS = 9, /* the packet has other constraints */
    MAD_ERR_PACKETS = 10,    /* fewer packets were packed, or more */
    MAD_ERR_PEER = 11,       /* the peer is gone */
    MAD_ERR_LIMIT = 12,      /* more packets, messages or channels than can be counted */
    MAD_ERR_SYSTEM = 13      /* the job could not be joined or left */
};

/* Counted: as many mad_finalize as mad_init. MPI may be initialised before, after, or not at all, and
   finalised before, after, or not at all; the last finalisation of all leaves the job, and waits for
   all processes. Afterwards all of them may initialise the interface again. */
int mad_init(void);
int mad_finalize(void);
int mad_rank(int *rank);
int mad_size(int *size);

/* Processes that open the same number, from 0 to 65535, have the same channel; nothing is exchanged.
   What comes for a number that is not open waits until it is. */
int mad_channel_open(int number, mad_channel_t *channel);
int mad_channel_close(mad_channel_t channel);

/* One message at a time to each process on each channel. mad_end_packing waits until the memory of all
   packets is free; for long ones that may be when they are unpacked. It ends the message even when it
   fails. */
int mad_begin_packing(mad_channel_t channel, int to, mad_connection_t *connection);
int mad_pack(mad_connection_t connection, const void *data, size_t size, int send, int receive, int next);
int mad_end_packing(mad_connection_t connection);

/* mad_begin_unpacking waits for a message of any process; mad_begin_unpacking_from takes the next of one
   process and does not wait. Packets are unpacked in the order in which they were packed, with the same
   lengths and constraints. Where that is not so, mad_unpack fails, and the packet is still the next; if
   it has returned before, as it may with mad_receive_CHEAPER, the packet is lost and mad_end_unpacking
   fails. So it does when packets are left, which are lost. It waits until the sender has ended the
   message, and ends the unpacking even when it fails. */
int mad_begin_unpacking(mad_channel_t channel, mad_connection_t *connection);
int mad_begin_unpacking_from(mad_channel_t channel, int from, mad_connection_t *connection);
int mad_unpack(mad_connection_t connection, void *data, size_t size, int send, int receive, int next);
int mad_end_unpacking(mad_connection_t connection);

/* The process at the other end. */
int mad_peer(mad_connection_t connection, int *rank);

/* What a code means; why this thread's last failed call failed. */
const char *mad_strerror(int code);
const char *mad_last_error(void);

#ifdef __cplusplus
}
#endif
#endif

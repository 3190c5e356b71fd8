/*
 * An MPI program: sums ranks over all tasks, passes a number around the ring, and reads a
 * neighbour's memory on the same node. Prints "rank of size: sum ring vm".
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int rank, size, sum = 0, token = 0, read_back = -1;
	long mine[2], theirs[2];
	static int secret;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	secret = 1000 + rank;
	if (rank == 0) {
		token = 1;
		MPI_Send(&token, 1, MPI_INT, 1 % size, 0, MPI_COMM_WORLD);
		MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else {
		MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		++token;
		MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
	}
	/* Neighbours 0 and 1, 2 and 3, … are on one node. */
	mine[0] = getpid();
	mine[1] = (long)&secret;
	MPI_Sendrecv(mine, 2, MPI_LONG, rank ^ 1, 1, theirs, 2, MPI_LONG, rank ^ 1, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	process_vm_readv((pid_t)theirs[0], &(struct iovec){ &read_back, sizeof(int) }, 1,
			 &(struct iovec){ (void *)theirs[1], sizeof(int) }, 1, 0);
	MPI_Barrier(MPI_COMM_WORLD);
	printf("%d of %d: %d %d %d\n", rank, size, sum, token, read_back);
	MPI_Finalize();
	return 0;
}
